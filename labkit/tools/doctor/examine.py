"""Say in plain words what this machine can do for the course.

``software``     Python, the packages, torch with its GPUs, and what the ranks would get
``torch_facts``  what torch finds, asked in a process of its own
``machine``      room, memory, network, temporary files, tools
``finding``      what a check reports
"""

from __future__ import annotations

from collections.abc import Callable

from . import machine, software
from .finding import Finding


def examine(progress: Callable[[str], object] = lambda topic: None) -> list[Finding]:
    """Make every check; ``progress`` is told what is looked at."""
    progress("packages")
    findings = [software.check_python(), software.check_packages()]
    progress("torch and GPUs")
    facts = software.torch_facts()
    findings += [*software.check_torch(facts), software.check_features(facts)]
    findings.append(software.check_strangers(facts))
    progress("machine")
    return [*findings, *(check() for check in machine.CHECKS)]
