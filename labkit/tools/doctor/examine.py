"""Say in plain words what this machine can do for the course."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

from ... import hosts
from ...base import times
from ...base.errors import LabError
from ...base.files import reason
from ...course import datasets, material
from ...launch.private_folder import PREFIX, check_place
from ...launch.zygote_client import fork_is_safe
from ...notebook import startup
from ...wire.processes import count_cores
from . import software
from .software import GIB, RANKS, Finding, State

#: Below this, DataLoader workers and NCCL run out of shared memory (Docker gives 64 MiB).
SMALL_SHM = GIB
#: What a lab writes is little; checkpoints of the lessons need this.
SMALL_TEMP = GIB
NO_TEMP = 16 << 20
TOOLS = {
    "srun": "ranks on Slurm",
    "mpiexec": "ranks by MPI",
    "sshd": "ranks over SSH",
    "ip": "lessons with several hosts",
}


def check_room() -> Finding:
    """Return how many ranks fit, by labkit's own limits."""
    memory = psutil.virtual_memory()
    try:
        most = min(startup.MAX_LOCAL_RANKS, startup.check_most(None))
    except LabError as error:
        return Finding("memory", "problem", str(error))
    fit = min(most, memory.available // startup.RANK_BYTES)
    text = (
        f"{count_cores()} cores; {memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    )
    if fit < 1:
        return Finding("memory", "problem", f"{text}: too little for a single rank")
    state: State = "ok" if fit >= RANKS else "note"
    return Finding("memory", state, f"{text}: room for about {fit} ranks")


def check_start() -> Finding:
    """Return how ranks start."""
    if fork_is_safe():
        return Finding("start", "ok", "ranks are forked from one warm process (a few seconds)")
    return Finding("start", "note", "ranks start one by one here, without a warm process (slower)")


def check_shm(folder: str = "/dev/shm") -> Finding:
    """Inspect the shared memory, which containers keep small."""
    try:
        total = psutil.disk_usage(folder).total
    except OSError:
        return Finding("shared memory", "note", f"no {folder}: normal except on Linux")
    size = f"{total / GIB:.1f} GiB" if total >= GIB else f"{total >> 20} MiB"
    if total < SMALL_SHM:
        text = (
            f"{size} in {folder}: little for NCCL and DataLoader workers (docker run --shm-size=1g)"
        )
        return Finding("shared memory", "note", text)
    return Finding("shared memory", "ok", f"{size} in {folder}")


def check_loopback() -> Finding:
    """Listen on a port of 127.0.0.1 and connect to it, as the ranks' store does."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(times.PORT_OPENED.seconds())
            with socket.create_connection(server.getsockname(), times.PORT_OPENED.seconds()):
                server.accept()[0].close()
    except OSError as error:
        return Finding("network", "problem", f"no connection over 127.0.0.1 ({reason(error)})")
    return Finding("network", "ok", "ports on 127.0.0.1 can be opened")


def check_temp() -> Finding:
    """Do in the temporary folder what a lab does: make a private folder, with sockets in it."""
    where = None
    try:
        where = tempfile.gettempdir()
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=where) as folder:
            free = psutil.disk_usage(folder).free
            Path(folder, "file").write_bytes(bytes(4096))
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(os.path.join(folder, "zmq:65535"))
        check_place(where)
    except LabError as error:
        return Finding("temporary files", "problem", str(error))
    except OSError as error:
        text = f"{where or 'none'} cannot be used ({reason(error)}); set TMPDIR to a short path"
        return Finding("temporary files", "problem", text)
    size = f"{free / GIB:.1f} GiB free in {where}"
    if free < NO_TEMP:
        return Finding("temporary files", "problem", f"{free >> 20} MiB free in {where}")
    return Finding("temporary files", "ok" if free >= SMALL_TEMP else "note", size)


def check_data() -> Finding:
    """Search for the course and for MNIST, the subset and the full set."""
    try:
        count = len(material.notebooks())
        places = datasets.folders()
    except LabError as error:
        return Finding("course", "problem", str(error))
    folders = [folder for place in places for folder in (place, place / "full")]
    if not any(not datasets.problem(folder, "subset") for folder in places):
        problem = datasets.problem(places[0], "subset")
        return Finding("course", "problem", f"the MNIST subset in {places[0]}: {problem}")
    full = any(not datasets.problem(folder, "full") for folder in folders)
    rest = "the full one too" if full else "the full one is downloaded when a lesson wants it"
    return Finding("course", "ok", f"{count} notebooks; MNIST subset there, {rest}")


def check_tools(which: Callable[[str], str | None] | None = None) -> Finding:
    """Search for the programs that only the lessons on several hosts use."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    find = which or (lambda tool: shutil.which(tool, path=path))
    found = [tool for tool in TOOLS if find(tool)]
    missing = [f"{tool} ({what})" for tool, what in TOOLS.items() if tool not in found]
    parts = ["found " + ", ".join(found)] if found else []
    parts += ["not here: " + ", ".join(missing)] if missing else []
    return Finding("tools", "note" if missing else "ok", "; ".join(parts))


def check_hosts() -> Finding:
    """Try whether this machine can pass for several, which some lessons make it do."""
    if why := hosts.unavailable_reason():
        return Finding("hosts", "note", why)
    return Finding("hosts", "ok", "this machine can pass for several hosts")


CHECKS = (
    check_room,
    check_start,
    check_shm,
    check_loopback,
    check_temp,
    check_data,
    check_tools,
    check_hosts,
)


def examine(progress: Callable[[str], object] = lambda topic: None) -> list[Finding]:
    """Make every check; ``progress`` is told what is looked at."""
    progress("packages")
    findings = [software.check_python(), software.check_packages()]
    progress("torch and GPUs")
    facts = software.torch_facts()
    findings += [*software.check_torch(facts), software.check_features(facts)]
    findings += [software.check_patches(facts), software.check_strangers(facts)]
    progress("machine")
    return [*findings, *(check() for check in CHECKS)]
