"""Measure the memory of everything below a lab of sixteen idle ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace

import psutil

from .child import BenchError, Child, program
from .claim import Claim

RANKS = 16
SECONDS = 90.0  #: for the start
SETTLE_SECONDS = 1.0
GIB, MIB = 2**30, 2**20
NOTEBOOK = "the program that started the lab"  #: measured too, not counted

CLAIM = Claim(
    name="memory",
    what=f"{RANKS} idle ranks and all that serves them",
    a="labkit",
    b="",
    unit="GiB",
    figure_unit="GiB",
    bound=1.6,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Start one lab, let its ranks finish one all_reduce, look ``rounds`` times; the most counts.

    The proportional set size shares each page among all processes that map it, so the sum over
    the lab is what the machine really holds for it. Other programs that run torch from the same
    files bear a part of it too: what they lower by their coming and going is not counted.
    """
    sizes: dict[str, list[float]] = {"a": [], NOTEBOOK: []}
    with Child(program("idle_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        engines = set(lab.answer())
        owner = psutil.Process(lab.process.pid)
        for _ in range(rounds):
            time.sleep(SETTLE_SECONDS)
            below = {p.pid: _pss(p) for p in owner.children(recursive=True)}
            sizes["a"].append(sum(below.values()) / GIB)
            sizes[NOTEBOOK].append(_pss(owner) / GIB)
    total = max(sizes["a"])
    own = statistics.median(size for pid, size in below.items() if pid in engines)
    rest = sum(size for pid, size in below.items() if pid not in engines)
    note = (
        f"{total * 1024 / RANKS:.0f} MiB a rank, all shared; one rank's own share is "
        f"{own / MIB:.0f} MiB, controller and warm process together {rest / MIB:.0f} MiB"
    )
    return replace(CLAIM, figure=total, measurements=sizes, note=note)


def _pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except AttributeError:
        raise BenchError("this system does not tell proportional set sizes") from None
    except psutil.NoSuchProcess as error:
        raise BenchError(f"a process of the lab ended by itself ({error})") from None
