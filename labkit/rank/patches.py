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
from ..wire import cell_functions
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
    person,
    quiet,
    streams,
    tracebacks,
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


def _end_of_cells(rank: Rank) -> None:
    interrupts.reaches(device.finish)
    ipython_internals.at_end_of_cells(rank.shell, device.finish, interrupts.begin, leaving.as_error)


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


PATCHES = (
    Patch(
        "cell functions",
        "cloudpickle",
        "functions of cells are sent whole",
        lambda rank: cell_functions.send_whole(),
    ),
    Patch(
        "cell names",
        "IPython",
        "the names that cells have are told apart from the shell's own",
        lambda rank: names.install(rank.shell),
    ),
    Patch(
        "errors",
        "IPython, warnings, tqdm",
        "cells have their names; errors, warnings and bars are short",
        lambda rank: tracebacks.install(rank.shell, ended_groups.explain),
    ),
    Patch(
        "exit",
        "IPython, builtins",
        "exit() ends the cell and not the rank",
        lambda rank: leaving.install(rank.shell),
        needs=("errors", "cell names"),
    ),
    Patch(
        "streams",
        "ipykernel",
        "flushes that have nothing to send wait for nothing",
        lambda rank: streams.install(rank.shell.kernel.session),
    ),
    Patch(
        "guard",
        "torch",
        "what listens lets this user's processes in only",
        _guard,
    ),
    Patch(
        "record",
        "torch",
        "calls are noted, and refused in a group that has ended",
        _record,
        needs=("guard",),  # what is noted is the call of the cell, not the guard's
    ),
    Patch(
        "connecting",
        "torch",
        "a group is connected in a side thread, which can be given up",
        lambda rank: connecting.install(),
        needs=("guard",),  # which makes its sockets in that thread
    ),
    Patch(
        "backends",
        "torch",
        "plug-ins of backends are searched for once",
        lambda rank: backend_plugins.install(),
    ),
    Patch(
        "reducers",
        "torch",
        "DDP models are noted, and their groups live as long as they",
        lambda rank: reducers.install(),
    ),
    Patch(
        "backwards", "torch", "on a GPU, calls that issue collectives in C++ are noted", _backwards
    ),
    Patch(
        "rendezvous",
        "torch",
        "init_process_group meets again at a port it had before",
        lambda rank: rendezvous.install(),
    ),
    Patch(
        "tensors",
        "torch",
        "tensors on the rank's own GPU are shown without it",
        lambda rank: reprs.install(rank.device),
    ),
    Patch(
        "forks",
        "os",
        "a forked child collects none of the rank's garbage, and ends with SIGTERM",
        lambda rank: children.install(),
    ),
    Patch(
        "interrupts",
        "ipykernel",
        "SIGINT reaches the code of cells only",
        lambda rank: interrupts.install(rank.shell.kernel),
    ),
    Patch(
        "ends of cells",
        "IPython",
        "a cell ends when its GPU has ended",
        _end_of_cells,
        needs=("interrupts", "exit"),  # it wraps the code that interrupts know
    ),
    Patch(
        "cells",
        "IPython",
        "what a cell begins and ends with",
        lambda rank: calls.install(rank.shell),
        needs=("errors", "record"),
    ),
    Patch(
        "input",
        "ipykernel, builtins, getpass",
        "input() asks in the notebook",
        lambda rank: person.install(rank.shell.kernel),
    ),
    Patch(
        "debugger",
        "pdb, IPython",
        "breakpoint() and %debug ask in the notebook",
        lambda rank: debugger.install(rank.shell),
        needs=("errors", "input"),
    ),
    Patch(
        "clients",
        "ipykernel",
        "whose requests are served is noted",
        lambda rank: ipython_internals.note_sessions(rank.shell.kernel),
    ),
    Patch(
        "awaiting",
        "ipykernel",
        "a cell can await",
        lambda rank: ipython_internals.let_cells_await(rank.shell.kernel),
    ),
    Patch(
        "replies",
        "ipykernel",
        "a reply names the error of a value that could not be shown",
        lambda rank: ipython_internals.name_errors(rank.shell.kernel),
    ),
    Patch(
        "messages",
        "ipykernel",
        "of each request the notebook hears what it uses",
        lambda rank: quiet.install(rank.shell.kernel),
        needs=("streams", "replies"),  # it adds to a reply that is complete
    ),
    Patch(
        "control",
        "ipykernel",
        "the control channel answers the notebook's questions",
        lambda rank: control.install(rank.shell.kernel),
        needs=("cells", "input", "record"),
    ),
)


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


def apply(rank: Rank) -> None:
    """Install all patches in this process."""
    for patch in in_order(PATCHES):
        patch.install(rank)
