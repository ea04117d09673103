"""Check the software: Python, packages, torch, and what labkit would make of the GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal

from ...base import times, versions
from ...launch import ipyparallel_internals, placement
from ...wire.encoding import decode
from ...wire.state import ProcessFacts, describe_exit, sentences
from ..environment import unencrypted_reason

State = Literal["ok", "note", "problem"]
#: Packages whose version is worth a look; torch has a line of its own.
SHOWN = ("ipyparallel", "jupyterlab")
#: Ranks of most lessons.
RANKS = 4
GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """What one check found: fine, worth knowing, or something the course cannot do without."""

    topic: str
    state: State
    text: str


def check_python() -> Finding:
    """Name the interpreter: it has to be the one with labkit's environment."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", "ok", f"{version} in {sys.prefix}")


def check_packages(requirements: Sequence[str] | None = None) -> Finding:
    """Compare what is installed with what labkit asks for (None), of its extras too where they are
    installed."""
    asked = versions.required() if requirements is None else list(requirements)
    course = versions.required("course") if requirements is None else []
    extras = versions.misfits(course)
    lacking = [one for one in extras if one.kind == "missing"]  # whoever has no course needs none
    found = versions.misfits(asked) + [one for one in extras if one not in lacking]
    wrong = [one for one in found if one.kind != "new"]
    if wrong:
        return Finding("packages", "problem", versions.sentence(wrong))
    if found:
        return Finding("packages", "note", versions.sentence(found))
    missing = {one.name for one in lacking}
    shown = [f"{name} {metadata.version(name)}" for name in SHOWN if name not in missing]
    count = len(asked) + len(course) - len(lacking)
    return Finding("packages", "ok", ", ".join([*shown, f"{count} as required"]))


def torch_facts(timeout: float = times.TORCH_ASKED) -> dict[str, Any]:
    """Ask a child process what torch finds (``torch_facts.gather``).

    Returns ``{"problem": sentence}`` if it fails or gives no answer within ``timeout`` seconds.
    """
    command = [sys.executable, "-P", "-m", "labkit.tools.doctor.torch_facts"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # Files, not pipes, and no wait without a bound: a process that is stuck inside a GPU
        # driver cannot even be killed.
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            try:
                child.wait(times.TORCH_KILLED.seconds())
            except subprocess.TimeoutExpired:
                child.returncode = -9  # nobody can wait for it
            return {"problem": f"no answer within {timeout:g} s"}
        out.seek(0)
        err.seek(0)
        lines, errors = out.read().split("\n"), err.read().strip().splitlines()
    if child.returncode:
        return {"problem": errors[-1] if errors else describe_exit(child.returncode)}
    return dict(json.loads(lines[-2]))


def check_torch(facts: Mapping[str, Any]) -> list[Finding]:
    """Return which torch this is, what GPUs it sees, and what the ranks would get."""
    if "problem" in facts:
        return [Finding("torch", "problem", f"cannot be used: {facts['problem']}")]
    findings = [_torch_version(facts), _gpus(facts), _nccl(facts)]
    process = decode(ProcessFacts, facts["place"])
    places = placement.place_ranks({i: replace(process, hint=i) for i in range(RANKS)})
    devices = list(dict.fromkeys(place.device for place in places))
    text = f"labkit.start({RANKS}) gives {', '.join(devices)} with backend {places[0].backend}"
    if facts["gpus"] and len(devices) < RANKS:
        text += f"; they take turns on {'it' if len(devices) == 1 else 'them'}"
    return [*findings, Finding("ranks", "ok", text)]


def check_features(facts: Mapping[str, Any]) -> Finding:
    """Return which features are off because a library hides what they rest on."""
    told = decode(ProcessFacts, facts["place"]).missing if "place" in facts else ()
    missing = [*ipyparallel_internals.check(), *(one for one in told if one.feature != "GPUs")]
    if not missing:
        return Finding("features", "ok", "all of them work with these versions")
    state: State = "problem" if any(one.needed for one in missing) else "note"
    return Finding("features", state, " ".join(sentences(missing)))


def check_patches(facts: Mapping[str, Any]) -> Finding:
    """List what labkit replaces in other libraries, in the processes of ranks only."""
    told = [f"{what} ({library})" for library, what in facts.get("patches", ())]
    return Finding("patches", "ok", f"{len(told)} on each rank: {'; '.join(told)}")


def check_strangers(facts: Mapping[str, Any]) -> Finding:
    """Return whether other users of this machine are kept out of groups, remote calls and
    output."""
    title, why = "other users", facts.get("open", "torch cannot be used")
    if why:
        text = f"can take part in process groups and remote calls of this machine: {why}"
        return Finding(title, "note", text)
    if why := unencrypted_reason():
        return Finding(title, "note", f"can read what the kernels of notebooks print: {why}")
    text = "cannot connect to the ranks that labkit starts here, nor read what cells print"
    return Finding(title, "ok", text)


def _torch_version(facts: Mapping[str, Any]) -> Finding:
    problem = facts.get("torchvision_problem")
    if problem:
        text = f"{facts['torch']}; torchvision does not fit to it ({problem.splitlines()[0]})"
        return Finding("torch", "problem", text)
    if not facts["gloo"]:
        return Finding("torch", "problem", f"{facts['torch']} was built without gloo")
    built = f"for CUDA {facts['cuda']}" if facts["cuda"] else "without CUDA"
    text = f"{facts['torch']} (built {built})"
    if facts["torchvision"]:
        text += f", torchvision {facts['torchvision']}"
    return Finding("torch", "ok", text)


def _gpus(facts: Mapping[str, Any]) -> Finding:
    gpus = facts["gpus"]
    if gpus:
        kinds: dict[str, int] = {}
        for gpu in gpus:
            kind = f"{gpu['name']}, {gpu['bytes'] / GIB:.0f} GiB"
            kinds[kind] = kinds.get(kind, 0) + 1
        return Finding("GPUs", "ok", "; ".join(f"{n} × {kind}" for kind, n in kinds.items()))
    if why := facts["no_gpu"]:
        text = f"none that torch can use: {why}; every rank computes on the CPU"
        return Finding("GPUs", "note", text)
    return Finding(
        "GPUs", "ok", "none: every rank computes on the CPU, the course runs all the same"
    )


def _nccl(facts: Mapping[str, Any]) -> Finding:
    if facts["nccl"] is None:
        state: State = "note" if facts["gpus"] else "ok"
        return Finding("NCCL", state, "not in this torch: ranks on GPUs use gloo, which is slower")
    version = ".".join(map(str, facts["nccl"]))
    needed = ".".join(map(str, placement.NCCL_SHARES_GPU))
    if tuple(facts["nccl"][:2]) >= placement.NCCL_SHARES_GPU:
        return Finding("NCCL", "ok", f"{version}: several ranks can share one GPU")
    text = f"{version}: one rank per GPU; ranks that share one use gloo (NCCL {needed} could)"
    return Finding("NCCL", "ok", text)
