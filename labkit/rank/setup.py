"""Say who this process is, give a cell the names it works with, and serve the notebook's remote
calls.

The warm process imports this, and by it all that runs on a rank: every fork has it then.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist

from ..base import variables
from ..base.errors import LabError
from ..wire import remote_calls
from ..wire.memory_files import Address, is_reachable
from ..wire.processes import count_cores
from ..wire.protocol import RANK_HINT
from ..wire.state import ProcessFacts
from . import (
    asyncio_internals,
    calls,
    gpus,
    ipython_internals,
    memory,
    names,
    patches,
    process_group,
    reloading,
    spare_files,
    tracebacks,
)
from .observe import device as devices
from .observe import traffic
from .profile import profiler
from .torch_internals import backend_plugins
from .torch_internals import names as torch_names
from .trial import trial

#: Where a launcher tells a process its place among the others, first found first.
HINTS = (RANK_HINT, "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: Whether this process has heard who it is: it may be told twice.
_assigned = False


def describe(file: Address | None = None) -> ProcessFacts:
    """Describe this process, and what its driver and libraries keep from labkit.

    ``file`` is one of the notebook's: whether this process can open it says whether they share
    memory.

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
            *torch_names.check(),
            *ipython_internals.check(),
            *asyncio_internals.check(),
        ),
        shares_memory=is_reachable(file),
    )


def assign(
    rank: int,
    world_size: int,
    device: str,
    threads: int,
    environment: Mapping[str, str],
    address: str,
    autoreload: bool,
) -> None:
    """Put ``rank``, ``world_size``, ``device``, ``torch`` and ``dist`` into the cell's names.

    ``threads`` is the number of threads torch may use inside an operation, unless the user set
    OMP_NUM_THREADS; ``address`` is this host's, on whose interface the traffic between ranks goes
    ("": all ranks are on one host, and it stays on loopback); ``autoreload`` says whether modules
    that have changed are reloaded. A second call, after an answer that
    nobody has heard, sets the names once more.
    """
    global _assigned
    use_environment(environment)
    if not dist.is_initialized():
        traffic.leave_out_notebook()
    process_group.use_address(address) if address else process_group.loopback_only()
    _use_threads(variables.threads() or threads)
    target = memory.device = torch.device(device)
    if target.type == "cuda":
        devices.use_blocking_sync(target)  # before anything makes a context
        torch.cuda.set_device(target)
    shell = tracebacks.get_shell()
    facts = {"rank": rank, "world_size": world_size, "device": target}
    names.give(shell, {**facts, "torch": torch, "dist": dist})
    if not _assigned:
        _assigned = True
        spare_files.keep(process_group.count_files(world_size))
        patches.apply(patches.Rank(shell, target))
        if autoreload:
            reloading.begin(shell)


def use_environment(environment: Mapping[str, str]) -> None:
    """Set variables; what the user has set of NCCL's stays."""
    for name, value in environment.items():
        if not (name.startswith("NCCL_") and name in os.environ):
            os.environ[name] = value


def _use_threads(number: int) -> None:
    """Limit the threads of one operation of torch."""
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


remote_calls.describe.handled_by(describe)
remote_calls.assign.handled_by(assign)

remote_calls.find_address.handled_by(process_group.find_address)
remote_calls.address_towards.handled_by(process_group.address_towards)
remote_calls.address.handled_by(process_group.address)
remote_calls.open_store.handled_by(spare_files.lent_to(process_group.open_store))
remote_calls.reserve_port.handled_by(process_group.reserve_port)
remote_calls.export.handled_by(process_group.export)
remote_calls.join.handled_by(spare_files.lent_to(process_group.join))
remote_calls.leave.handled_by(process_group.leave)

remote_calls.call.handled_by(calls.call)
remote_calls.pull.handled_by(calls.pull)
remote_calls.push.handled_by(calls.push)
remote_calls.delete.handled_by(calls.delete)
remote_calls.list_names.handled_by(names.list_names)

remote_calls.complete.handled_by(names.complete)
remote_calls.explain.handled_by(names.explain)

remote_calls.prepare_trial.handled_by(trial.prepare)
remote_calls.run_trial.handled_by(trial.run)
remote_calls.may_fix_size.handled_by(trial.may_fix_size)
remote_calls.end_trial.handled_by(trial.end)

remote_calls.record.handled_by(profiler.record_call)

# Look at all names once here, not on every rank.
backend_plugins.installed()
asyncio_internals.check()
ipython_internals.check()
torch_names.check()
