"""Open a store, join and leave the process group."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from datetime import timedelta
from ipaddress import ip_address

import psutil
import torch
import torch.distributed as dist

from ..base.errors import LabError
from ..base.rank_names import how_to_replace
from ..wire.connections import list_connections
from . import interrupts
from .observe import ended_groups
from .torch_internals import connecting, groups, rendezvous, stale

NCCL = "nccl"
#: What NCCL's threads in torch may do by themselves, unless the user has said.
#: Read from torch's ProcessGroupNCCL.hpp and .cpp (2.11 to 2.15).
NCCL_SETTINGS = {
    # By itself (3) the watchdog ends the process when a collective fails or has taken longer than
    # the group's time limit. 2: it aborts the communicators, which frees the rank, and the
    # process goes on; ``device.finish`` then raises what the watchdog has found.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",
    # Another thread calls std::abort() when the watchdog has not moved for 8 minutes, as behind a
    # CUDA call that hangs. 0: it writes a line instead.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # That thread also asks the store once a second whether any rank wants the recorder written
    # to a file, does that, and then ends. The deadlock watch reads the recorder itself.
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    # Before the watchdog aborts, it sleeps four times as long as a dump may take: a minute.
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    # The watchdog rethrows errors of CUDA that it meets, which ends the process. The main thread
    # meets them too, and there they are an error of the cell.
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    # Once per process torch warns that sends and receives outside a batch wait for one another in
    # a group like the lab's (``device_id`` is given). True, and no news to a learner's first send.
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0",
    # From 2.15 on "nccl" is another implementation, ProcessGroupNCCL2, unless this is 0 when the
    # first group is made. Recorder, abort and the settings above are known of the former one,
    # which the name "nccl-legacy" gives there.
    "TORCH_DIST_USE_NCCL2": "0",
}

#: Kept alive here: the group's store on every rank, which on rank 0 is its server too.
_store: dist.Store | None = None
#: By which this rank is reached from other hosts, if there are any.
_address = ""
#: Bound and never listening: holds the port where the learner's own groups can meet. No other
#: process is given it, and the server of a store may take it (both say SO_REUSEADDR).
_reserved: socket.socket | None = None


def open_store(host: str, timeout: float) -> tuple[int, int]:
    """Serve a TCPStore on ``host`` from this rank. Returns its port, and another that is free for
    the learner's own groups.

    The system picks the port, and the store gets the listening socket itself: handing over a
    number would leave a moment in which somebody else could take it, and a TCPStore that opens
    its own socket listens on every interface.
    """
    global _store
    check_files(rank=0, world_size=1)
    listener = socket.create_server((host, 0), backlog=512)
    port = listener.getsockname()[1]
    _store = dist.TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        timeout=timedelta(seconds=timeout),
    )
    return port, reserve_port(host)


def reserve_port(host: str) -> int:
    """Keep a free port of ``host``, this one, for the learner's own groups. Returns its number."""
    global _reserved
    _reserved = socket.socket()
    _reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.bind((host, 0))
    return int(_reserved.getsockname()[1])


def export(rank: int, world_size: int, host: str, port: int) -> None:
    """Set what torchrun would have set: ``env://``, scripts and libraries look here."""
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR=host, MASTER_PORT=str(port)
    )


def count_files(world_size: int) -> int:
    """Return how many file descriptors a group takes: gloo has a connection with each rank, and a
    few more."""
    return 8 + 2 * world_size


def check_files(rank: int, world_size: int) -> None:
    """Check whether there are the file descriptors that a group takes: gloo's threads wait for
    those that they lack.

    Raises
    ------
    LabError
        If they are not.
    """
    taken: list[int] = []
    try:
        for _ in range(count_files(world_size)):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise LabError(
            f"no file descriptor is left for the process group ({error.strerror}; this process may "
            f"have {most} open). {how_to_replace([rank])}; ulimit -n allows more."
        ) from None
    finally:
        for descriptor in taken:
            os.close(descriptor)


@interrupts.reaches
def join(
    rank: int,
    world_size: int,
    backend: str,
    device: str,
    host: str,
    port: int,
    own_port: int,
    timeout: float,
) -> None:
    """Join the default process group through the store that rank 0 serves.

    ``timeout`` in seconds, for joining and for every later collective. Groups of the learner's own
    find each other at ``own_port``.
    """
    global _store
    check_files(rank, world_size)
    export(rank, world_size, host, own_port)
    limit = timedelta(seconds=timeout)
    if rank != 0:
        _store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
    assert _store is not None
    _store.set_timeout(limit)
    target = torch.device(device)
    if backend == NCCL:
        for name, value in NCCL_SETTINGS.items():
            os.environ.setdefault(name, value)
    dist.init_process_group(
        name_for_torch(backend),
        store=dist.PrefixStore("labkit", _store),
        rank=rank,
        world_size=world_size,
        timeout=limit,
        device_id=target if backend == NCCL else None,
    )
    ended_groups.note_joined()


def name_for_torch(backend: str) -> str:
    """Return what ``init_process_group`` is to be told for a backend of the lab.

    A group of NCCL alone refuses tensors on the CPU; gloo takes those beside it.
    """
    return "cpu:gloo,cuda:nccl" if backend == NCCL else backend


def leave(by: str = "") -> None:
    """Leave the process group, if this rank is in one (its sub-groups end too).

    ``by`` says through what: "lab.reset()"; "the deadlock", of the last cell.
    """
    global _store
    ended_groups.leave(by)
    if dist.is_initialized():
        # Else NCCL ends a group together with ranks that may have aborted theirs.
        groups.abort()
        dist.destroy_process_group()
        stale.forget_meshes()
    else:
        # Torch names groups by counting. One that failed here may not have failed elsewhere: the
        # ranks would give the next one different names, and never meet.
        groups.forget_made()
    rendezvous.end()
    connecting.forget()
    _store = None


def loopback_only() -> None:
    """Keep gloo and NCCL on the loopback interface. Settings that are there already stay."""
    name = next((n for _, n in socket.if_nameindex() if n.startswith("lo")), None)
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def find_address() -> str:
    """Return the address of this host that other hosts reach it by, "" if that is not certain.

    It is the one of this rank's connection with the controller, unless both are on one host;
    else what the host's name stands for, which on Debian may be 127.0.1.1.
    """
    own = [str(connection.own[0]) for connection in list_connections()]
    with contextlib.suppress(OSError):  # a name that stands for nothing
        own.append(socket.gethostbyname(socket.gethostname()))
    return next(filter(_reaches, own), "")


def address_towards(other: str) -> str:
    """Return the address that this host sends from to another one, "" if there is no way."""
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # sends nothing
        return next(filter(_reaches, probe.getsockname()[:1]), "")
    return ""


def _reaches(address: str) -> bool:
    """Return whether an address is one of IPv4 for use between hosts."""
    read = ip_address(address)
    return read.version == 4 and not read.is_loopback


def use_address(address: str) -> None:
    """Reach and be reached by this address: gloo gets the name of its interface.

    By itself gloo takes the address that the host's name stands for. A setting that is there
    already stays.
    """
    global _address
    _address = address
    for name, addresses in psutil.net_if_addrs().items():
        if address in [a.address for a in addresses]:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def address() -> str:
    """Return the address by which this rank is reached from other hosts."""
    return _address
