"""List what a rank replaces in other libraries, and replace it in an order that fits.

Of two replacements of one function, the one that comes last is called first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

import torch

from ..guard import guarded
from ..guard import torch_internals as guard
from ..wire import processes
from ..wire.connections import list_connections
from . import (
    calls,
    children,
    control,
    debugger,
    interrupts,
    ipython_internals,
    leaving,
    names,
    quiet,
    read_once,
    streams,
    tracebacks,
    user_input,
)
from .observe import device, ended_groups, p2p_record, unseen_calls
from .torch_internals import backend_plugins, connecting, reducers, rendezvous, reprs
from .torch_internals import names as torch_names


class Rank(NamedTuple):
    """What there is to patch for: the engine's shell, with its kernel, and the rank's device."""

    shell: Any
    device: torch.device


@dataclass(frozen=True)
class Patch:
    """What is replaced in another library, and why."""

    name: str
    library: str
    what: str  #: what becomes of it
    install: Callable[[Rank], object]
    needs: tuple[str, ...] = ()  #: names of those that come before


def _record(rank: Rank) -> None:
    p2p_record.install()
    p2p_record.write_receives()


def _backwards(rank: Rank) -> None:
    if rank.device.type == "cuda":
        unseen_calls.install()


def _guard(rank: Rank) -> None:
    guarded.install()
    if torch_names.is_on("guard"):
        guard.install(list_connections)


def _ends(rank: Rank) -> None:
    interrupts.reaches(device.finish)
    ipython_internals.at_end_of_cells(rank.shell, device.finish, interrupts.begin, leaving.as_error)


def _errors(rank: Rank) -> None:
    tracebacks.install(rank.shell, ended_groups.explain)


def _shell(install: Callable[[Any], object]) -> Callable[[Rank], object]:
    return lambda rank: install(rank.shell)


def _kernel(install: Callable[[Any], object]) -> Callable[[Rank], object]:
    return lambda rank: install(rank.shell.kernel)


def _alone(install: Callable[[], object]) -> Callable[[Rank], object]:
    return lambda rank: install()


# fmt: off
PATCHES = (
    Patch("cell functions", "cloudpickle", "functions of cells are sent whole",
          _alone(processes.send_whole)),
    Patch("cell names", "IPython", "the names that cells have are told apart from the shell's own",
          _shell(names.install)),
    Patch("errors", "IPython, warnings, tqdm",
          "cells have their names; errors, warnings and bars are short", _errors),
    Patch("exit", "IPython, builtins", "exit() ends the cell and not the rank",
          _shell(leaving.install), needs=("errors", "cell names")),
    Patch("reading", "IPython", "a cell's text is turned into Python once, not twice",
          _shell(read_once.install)),
    Patch("streams", "ipykernel", "flushes that have nothing to send wait for nothing",
          lambda rank: streams.install(rank.shell.kernel.session)),
    Patch("guard", "torch", "what listens lets this user's processes in only", _guard),
    # What is noted is the call of the cell, not the guard's.
    Patch("record", "torch", "calls are noted, and refused in a group that has ended",
          _record, needs=("guard",)),
    # The guard makes its sockets in the side thread.
    Patch("connecting", "torch", "a group is connected in a side thread, which can be given up",
          _alone(connecting.install), needs=("guard",)),
    Patch("backends", "torch", "plug-ins of backends are searched for once",
          _alone(backend_plugins.install)),
    Patch("reducers", "torch", "DDP models are noted, and their groups live as long as they",
          _alone(reducers.install)),
    Patch("backwards", "torch", "on a GPU, calls that issue collectives in C++ are noted",
          _backwards),
    Patch("rendezvous", "torch", "init_process_group meets again at a port it had before",
          _alone(rendezvous.install)),
    Patch("tensors", "torch", "tensors on the rank's own GPU are shown without it",
          lambda rank: reprs.install(rank.device)),
    Patch("forks", "os",
          "a forked child collects none of the rank's garbage, and ends with SIGTERM",
          _alone(children.install)),
    Patch("interrupts", "ipykernel", "SIGINT reaches the code of cells only",
          _kernel(interrupts.install)),
    # It wraps the code that interrupts know.
    Patch("ends of cells", "IPython", "a cell ends when its GPU has ended",
          _ends, needs=("interrupts", "exit")),
    Patch("cells", "IPython", "what a cell begins and ends with",
          _shell(calls.install), needs=("errors", "record")),
    Patch("input", "ipykernel, builtins, getpass", "input() asks in the notebook",
          _kernel(user_input.install)),
    Patch("debugger", "pdb, IPython", "breakpoint() and %debug ask in the notebook",
          _shell(debugger.install), needs=("errors", "input")),
    Patch("clients", "ipykernel", "whose requests are served is noted",
          _kernel(ipython_internals.note_sessions)),
    Patch("awaiting", "ipykernel", "a cell can await", _kernel(ipython_internals.let_cells_await)),
    Patch("replies", "ipykernel", "a reply names the error of a value that could not be shown",
          _kernel(ipython_internals.name_errors)),
    # It adds to a reply that is complete.
    Patch("messages", "ipykernel", "of each request the notebook hears what it uses",
          _kernel(quiet.install), needs=("streams", "replies")),
    Patch("control", "ipykernel", "the control channel answers the notebook's questions",
          _kernel(control.install), needs=("cells", "input", "record")),
)
# fmt: on


def in_order(patches: Iterable[Patch]) -> list[Patch]:
    """Return patches so that each comes after those that it needs.

    Raises
    ------
    ValueError
        If one needs what is not there, or two need one another.
    """
    known = {patch.name: patch for patch in patches}
    for patch in known.values():
        if missing := set(patch.needs) - known.keys():
            raise ValueError(f"the patch {patch.name!r} needs {', '.join(sorted(missing))}")
    graph = {patch.name: patch.needs for patch in known.values()}
    return [known[name] for name in TopologicalSorter(graph).static_order()]


#: In the order in which they are applied, found once where ranks are forked from.
ORDERED = in_order(PATCHES)


def apply(rank: Rank) -> None:
    """Install all patches in this process."""
    for patch in ORDERED:
        patch.install(rank)
