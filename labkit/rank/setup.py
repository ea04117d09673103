"""Say who this process is, and give a cell the names it works with."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist

from .. import variables
from ..errors import LabError
from ..guard import guarded
from ..guard import torch_internals as guard
from ..wire import cell_functions
from ..wire.connections import list_connections
from ..wire.machine import count_cores
from ..wire.protocol import RANK_HINT
from ..wire.state import ProcessFacts
from . import (
    calls,
    children,
    control,
    debugger_internals,
    ended_groups,
    gpus,
    interrupts,
    ipython_internals,
    last_receives,
    leaving,
    memory,
    person,
    process_group,
    quiet,
    spare_files,
    streams,
    tracebacks,
)
from . import device as devices
from . import names as variable_names
from .observe import p2p_record, traffic, unseen_calls
from .torch_internals import (
    backend_plugins,
    connecting,
    names,
    reducers,
    rendezvous,
    reprs,
)

#: Where a launcher tells a process its place among the others, first found first.
HINTS = (RANK_HINT, "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: Whether this process has heard who it is: it may be told twice.
_assigned = False


def describe() -> ProcessFacts:
    """Describe this process, and what its driver and libraries keep from labkit.

    Initialises no CUDA context: counting devices does not need one.
    """
    hints = (variables.place(name) for name in HINTS)
    found = gpus.find()
    return ProcessFacts(
        host=socket.gethostname(),
        pid=os.getpid(),
        hint=next((hint for hint in hints if hint is not None), None),
        gpus=found,
        nccl=gpus.nccl_version() if found else None,
        cores=count_cores(),
        missing=(
            *gpus.check(),
            *names.check(),
            *ipython_internals.check(),
            *debugger_internals.check(),
        ),
    )


def assign(
    rank: int,
    world_size: int,
    device: str,
    threads: int,
    environment: Mapping[str, str],
    address: str,
) -> None:
    """Put ``rank``, ``world_size``, ``device``, ``torch`` and ``dist`` into the cell's names.

    ``threads`` is the number of threads torch may use inside an operation, unless the user set
    OMP_NUM_THREADS; ``address`` is this host's, on whose interface the traffic between ranks goes
    ("": all ranks are on one host, and it stays on loopback). A second call, after an answer that
    nobody has heard, sets the names once more.
    """
    global _assigned
    use_environment(environment)
    if not dist.is_initialized():
        traffic.leave_out_notebook()
    if address:
        process_group.use_address(address)
    else:
        process_group.loopback_only()
    _use_threads(variables.threads() or threads)
    target = torch.device(device)
    if target.type == "cuda":
        devices.use_blocking_sync(target)  # before anything makes a context
        torch.cuda.set_device(target)
    memory.device = target
    reprs.install(target)
    shell = tracebacks.get_shell()
    facts = {"rank": rank, "world_size": world_size, "device": target}
    given = {**facts, "torch": torch, "dist": dist}
    variable_names.give(shell, given)
    if _assigned:
        return
    _assigned = True
    spare_files.keep(process_group.count_files(world_size))
    variable_names.install(shell, given)
    cell_functions.send_whole()
    tracebacks.install(shell)
    tracebacks.explainers.append(ended_groups.explain)
    leaving.install(shell)
    streams.install(shell.kernel.session)
    # In this order: what is wrapped last is called first. A store or a group is to be noted by the
    # call that the watch knows, around the one that keeps strangers from what listens in it.
    guarded.install()
    if names.is_on("guard"):
        guard.install(list_connections)
    p2p_record.install()
    last_receives.install()
    connecting.install()
    backend_plugins.install()
    reducers.install()
    if target.type == "cuda":
        unseen_calls.install()
    children.install()
    interrupts.install(shell.kernel)
    interrupts.reaches(devices.finish)
    ipython_internals.at_end_of_cells(shell, devices.finish, interrupts.begin, leaving.as_error)
    if names.is_on("meeting again"):
        rendezvous.install()
    shell.events.register("pre_run_cell", lambda info: p2p_record.places.clear())
    shell.events.register("pre_run_cell", lambda info: ipython_internals.forget_outputs(shell))
    variable_names.keep(shell)
    shell.events.register("pre_run_cell", calls.begin_cell)
    shell.events.register("post_run_cell", calls.end_cell)
    shell.events.register("pre_run_cell", lambda info: ended_groups.begin_cell(info.raw_cell))
    shell.events.register(
        "post_run_cell",
        lambda _: ended_groups.end_cell(shell.user_ns, is_labs=process_group.is_formed()),
    )
    calls.note_loop()
    person.install(shell.kernel, lambda: calls.running or calls.in_cell)
    debugger_internals.install(shell)
    ipython_internals.note_sessions(shell.kernel)
    ipython_internals.let_cells_await(shell.kernel)
    ipython_internals.name_errors(shell.kernel)
    quiet.install(shell.kernel)
    control.install(shell.kernel)


def use_environment(environment: Mapping[str, str]) -> None:
    """Set variables; what the user has set of NCCL's stays."""
    for name, value in environment.items():
        if not (name.startswith("NCCL_") and name in os.environ):
            os.environ[name] = value


def _use_threads(number: int) -> None:
    """Let an operation of torch's use so many threads."""
    try:
        torch.set_num_threads(number)
    except RuntimeError as error:  # it starts them at once
        raise LabError(
            f"The system gives a rank no {number} threads ({error}); {variables.THREADS} asks for "
            "them."
        ) from None


def write_gpu_count(path: str) -> None:
    """Write the number of GPUs to a file: run in a child, so that the parent meets no driver."""
    Path(path).write_text(str(len(gpus.find())))
