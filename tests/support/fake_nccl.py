"""Give gloo the semantics of NCCL, so that labkit's side of them can be tried without a GPU.

This proves nothing about NCCL itself: not its speed, not its errors, not its abort. It shows what
labkit does where calls return before their work is done. Preloaded in the warm process (see
:mod:`tests.support.on_fake_nccl`), before labkit's own recording wraps torch's methods, it changes

- **calls**: a synchronous collective returns at once and gives no Work; an asynchronous one, a
  send and a receive give a Work whose ``wait()`` returns at once, as NCCL's only orders streams,
  and whose ``is_completed()`` tells the truth. ``barrier`` blocks in C.
- **batches**: inside ``dist.batch_isend_irecv`` and torch's coalescing manager every call gives
  None, and the end of the batch one Work.
- **connecting**, with the option ``connect``: the first collective of a group blocks in the call
  until all have come; the main thread is on the processor all the while (seen on an H200 with NCCL
  2.30).
- **looks**: a tensor that is still written or read is waited for when a function of torch touches
  it (``item``, ``tolist``, ``print``, ``+``): in C, the interpreter free, under a Python frame that
  labkit does not know. Asking for its shape, its type or a view is no look. A backward looks at
  the gradients that it begins with, and at what a tensor's hook gives. ``synchronize`` of the
  device's module, which does nothing on a CPU, waits for all but small sends.
- **order**: collectives of a group are done one after the other. Where a stream of CUDA would hold
  a call back (its tensor is in use; a collective of another group, or a receive, which the program
  has waited for, has not ended), the call itself blocks, in C. A send of up to ``BUFFERED`` bytes
  holds nothing back.
- **life**: what was given is kept until it is done, so that a message whose handle was dropped
  still arrives. The end of a cell waits for all of it: it is labkit's device queue.
- **threads**: a thread that Python does not know wakes up every 100 ms forever, as NCCL's
  watchdog does.

Different from NCCL: what torch's C++ calls by itself stays gloo's (DDP's reducer, functional
collectives and their ``wait_tensor``), and so do ``monitored_barrier`` and a receive from any
rank, which NCCL has not. So is a group for which the program names the backend,
``new_group(backend="gloo")``: beside NCCL it takes what lies on the CPU (no batches there). A first
message does not connect. Tags are kept. Sends and receives outside a batch do not wait for one
another unless the program waits. NumPy arrays that share a tensor's memory may look too early.

The variable ``LABKIT_TEST_MANNERS`` switches it on: ``on``, or ``on connect`` (above).
"""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.overrides import TorchFunctionMode

import labkit
from labkit.guard import guarded
from labkit.rank import os_threads
from labkit.rank.observe import device, device_wait, flight_recorder
from labkit.rank.observe.p2p_record import Message
from labkit.rank.torch_internals import groups as torch_groups
from labkit.wire.samples import GroupKey

VARIABLE = "LABKIT_TEST_MANNERS"
#: Seconds between two wakes of the fake watchdog: torch's kWatchdogThreadSleepMillis.
WAKE_SECONDS = 0.1
#: A send of so many bytes ends though nobody receives it: NCCL has buffers.
BUFFERED = 1 << 20
#: ProcessGroup's methods that give work to the device.
COLLECTIVES = (
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "gather_single",
    "gather_into_tensor",
    "scatter",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "barrier",
)
#: Functions of a tensor that do not touch its values.
NO_LOOK = frozenset(
    {
        "__get__", "__set__", "__len__", "__hash__", "size", "dim", "ndimension", "stride",
        "numel", "nelement", "element_size", "storage_offset", "data_ptr", "untyped_storage",
        "storage", "get_device", "detach", "detach_", "view", "view_as", "view_as_real",
        "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad",
    }
)  # fmt: skip
CPU = torch.device("cpu")

original: dict[str, Any] = {}
connects = False


# -- what was given to the device ---------------------------------------------------------------


class Given:
    """A collective or a message that was given to the device.

    Attributes
    ----------
    kind
        "collective", "send" or "recv".
    tensors
        What it reads and writes, kept until it is done.
    message
        Its end of a message, for labkit.
    ordered
        Whether the program has waited for it: a stream would hold back all that comes later.
    """

    def __init__(
        self, group: Any, kind: str, tensors: Sequence[torch.Tensor], message: Message | None
    ) -> None:
        self.group, self.kind, self.tensors, self.message = group, kind, tensors, message
        self.storages = frozenset(storages_of(tensors))
        self.bytes = sum(t.numel() * t.element_size() for t in tensors)
        self.ordered = False
        #: gloo's Work of it does not know that it is done unless somebody waits for it
        self.is_silent = kind != "collective"
        self.work: Any = None
        self._carried: Any = None

    def carry(self, work: Any) -> None:
        """Follow the Work that gloo has made."""
        self.work = work
        if self.is_silent:
            self._carried = torch.futures.Future()
            _thread.start_new_thread(_carry, (original["wait"], work, self._carried))

    def is_done(self) -> bool:
        if self._carried is not None:
            return bool(self._carried.done())
        return self.work is None or bool(self.work.is_completed())

    def wait(self) -> None:
        """Wait until it is done: in C, and nothing interrupts it. Raises what went wrong."""
        if self._carried is not None:
            torch._C.Future.wait(self._carried)
        elif self.work is not None:
            original["wait"](self.work)

    def failure(self) -> RuntimeError | None:
        """Return what went wrong with it, when it is done."""
        try:
            self.wait()
        except RuntimeError as error:
            return error
        return None

    def holds_back(self, group: Any, kind: str, storages: frozenset[int]) -> bool:
        """Return whether a later call would be held back by it in a stream of CUDA."""
        same_queue = self.kind == kind == "collective" and self.group is group
        if same_queue:
            return False
        if self.storages & storages and not (self.kind == kind == "send"):
            return True
        return self.ordered and not (self.kind == "send" and self.bytes <= BUFFERED)


#: What waits for a message. No thread of the program's: NCCL follows its messages in C++, so the
#: code has a file name of labkit's, whose threads issue no calls.
_CARRY = """
def _carry(wait, work, future):
    try:
        wait(work)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)
"""
_names: dict[str, Any] = {}
_file = Path(labkit.__file__).parent / "rank" / "observe" / "stand_in_for_a_native_thread.py"
exec(compile(_CARRY, str(_file), "exec"), _names)
_carry = _names["_carry"]


class Manners:
    """The device queue of a rank, for labkit; see ``labkit.rank.observe.device.Cuda``."""

    def __init__(self) -> None:
        self.given: list[Given] = []  #: oldest first
        self.failed: list[RuntimeError] = []  #: of what nobody has looked at
        self.connecting: Given | None = None  #: in whose call the main thread is
        self._connected: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def is_used(self) -> bool:
        return True

    def mark(self) -> None:
        self._drop(lambda given: not self._is_of_today(given))
        self.failed.clear()

    def is_done(self) -> bool:
        for given in self._drop(Given.is_done):
            error = given.failure()
            if error is not None and self._is_of_today(given):
                self.failed.append(error)
        if self.failed:
            failed, self.failed = self.failed, []
            raise failed[0]
        return not self.given

    def held(self) -> int:
        return 0 if self.connecting is None else id(self.connecting)

    def progress(self) -> tuple[int, ...]:
        return len(self.collectives()), len(self.messages()), self.held()

    def connect(self, given: Given) -> None:
        """Wait in the first collective of a group for the others; raise what went wrong."""
        if not connects or given.kind != "collective" or given.group in self._connected:
            return
        main = threading.current_thread() is threading.main_thread()
        self.connecting = given if main else None
        try:
            self.wait_for(lambda other: other is given)
        finally:
            self.connecting = None
        self._connected.add(given.group)

    def collectives(self) -> Sequence[tuple[GroupKey, int]]:
        return flight_recorder.pending() if self.given else ()

    def messages(self) -> Sequence[Message]:
        return [g.message for g in list(self.given) if g.message is not None and not g.is_done()]

    def give(self, given: Given) -> Given:
        with self._lock:
            self.given.append(given)
        return given

    def _drop(self, which: Callable[[Given], bool]) -> list[Given]:
        """Take those out of the queue of which ``which`` is true; return them."""
        with self._lock:
            out = [given for given in self.given if which(given)]
            self.given = [given for given in self.given if given not in out]
        return out

    @staticmethod
    def _is_of_today(given: Given) -> bool:
        return given.group in torch_groups.groups()

    def wait_for(self, which: Callable[[Given], bool]) -> None:
        """Wait in C for those of which ``which`` is true; raise what went wrong with one."""
        for given in [given for given in list(self.given) if which(given)]:
            try:
                given.wait()
            finally:
                self._drop(lambda other, given=given: other is given)  # type: ignore[misc]

    def sweep(self) -> None:
        """Forget what is done, and remember what went wrong with it."""
        for given in self._drop(Given.is_done):
            if (error := given.failure()) is not None and self._is_of_today(given):
                self.failed.append(error)


queue = Manners()
#: What the program's Works stand for; others are gloo's own.
works: WeakKeyDictionary[Any, list[Given]] = WeakKeyDictionary()
#: The batches that are open, by group.
batches: dict[Any, list[Given]] = {}
#: Groups for which the program has named the backend.
named: WeakSet[Any] = WeakSet()
#: group -> (kind, peer, tag) -> how many messages
posted: WeakKeyDictionary[Any, dict[tuple[str, int, int], int]] = WeakKeyDictionary()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def storages_of(tensors: Sequence[torch.Tensor]) -> Iterator[int]:
    """Yield what stands for the memory of each tensor: views share it."""
    for tensor in tensors:
        try:
            yield tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):  # sparse
            continue


# -- calls --------------------------------------------------------------------------------------


def is_gloo(of_torch: Any) -> bool:
    """Return whether gloo serves the CPU in a process group, in place of NCCL."""
    try:
        backend = of_torch._get_backend(CPU)
    except RuntimeError:
        return False
    return isinstance(backend, dist.ProcessGroupGloo) and of_torch not in named


def begin(group: Any, kind: str, tensors: Sequence[torch.Tensor]) -> None:
    """Block where a stream would hold the call back."""
    queue.sweep()
    batch, storages = batches.get(group, ()), frozenset(storages_of(tensors))
    queue.wait_for(lambda g: g not in batch and g.holds_back(group, kind, storages))


def end(group: Any, given: Given, work: Any, *, is_async: bool) -> Any:
    """Give what gloo has begun to the device; return what the program gets."""
    given.carry(work)
    queue.give(given)
    if group in batches:
        batches[group].append(given)
        return None
    queue.connect(given)
    if not is_async:
        given.ordered = True
        return None
    works[work] = [given]
    return work


def collective(name: str) -> Callable[..., Any]:
    """Return NCCL's form of a method that issues a collective."""

    def issue(self: Any, *args: Any, **named: Any) -> Any:
        if not is_gloo(self):
            return original[name](self, *args, **named)
        tensors = list(tensors_in((args, named)))
        begin(self, "collective", tensors)
        given = Given(self, "collective", tensors, None)
        given.is_silent = "reduce_scatter" in name
        work = original[name](self, *args, **named)
        options = [o for o in (*args, *named.values()) if hasattr(o, "asyncOp")]
        is_async = not options or bool(options[0].asyncOp)
        result = end(self, given, work, is_async=is_async)
        if name == "barrier" and not is_async:
            queue.wait_for(lambda other: other.ordered)
        return result

    issue.__name__ = name
    return issue


def message(name: str) -> Callable[..., Any]:
    """Return NCCL's form of ``send`` or ``recv``."""

    def post(self: Any, tensors: Any, peer: int, tag: int) -> Any:
        if not is_gloo(self):
            return original[name](self, tensors, peer, tag)
        begin(self, name, tensors)
        counts = posted.setdefault(self, {})
        number = counts.get((name, peer, tag), 0) + 1
        about = Message(self.group_name, name, peer, tag, number, self.rank())
        given = Given(self, name, list(tensors), about)
        work = original[name](self, tensors, peer, tag)
        counts[name, peer, tag] = number
        return end(self, given, work, is_async=True)

    post.__name__ = name
    return post


#: Order later calls after a Work, as NCCL's ``wait`` does; others wait as they always did. It has
#: the file name of a module of labkit's that only passes on, so that labkit sees its own wait.
_WAITING = """
def _waiting(original, works):
    def wait(self, *timeout, **named):
        found = works.get(self)
        if found is None:
            return original["wait"](self, *timeout, **named)
        for given in found:
            given.ordered = True
        return True
    return wait
"""
exec(compile(_WAITING, guarded.__file__, "exec"), _names)


class Batch(dist.Work):
    """The one Work of a batch."""

    def is_completed(self) -> bool:
        return all(given.is_done() for given in works.get(self, ()))


def start_coalescing(self: Any, device: torch.device) -> None:
    if is_gloo(self):
        batches[self] = []
    else:
        original["_start_coalescing"](self, device)


def end_coalescing(self: Any, device: torch.device) -> Any:
    if not is_gloo(self):
        return original["_end_coalescing"](self, device)
    made = batches.pop(self)
    if not made:
        return None
    work = Batch()
    works[work] = made
    return work


def shutdown(self: Any) -> None:
    """End a group when all that was given to it is done, or has failed."""
    for given in list(queue.given):
        if given.group is self:
            given.failure()
    queue._drop(lambda given: given.group is self)
    original["shutdown"](self)


# -- looks --------------------------------------------------------------------------------------


class Looks(TorchFunctionMode):
    """Wait for a tensor when a function of torch touches its values."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if queue.given and touches(func):
            look((args, named))
        return func(*args, **named)


def look(value: Any) -> Any:
    """Wait for the tensors in a value; return it."""
    if queue.given:
        storages = frozenset(storages_of(list(tensors_in(value))))
        queue.wait_for(lambda given: bool(given.storages & storages))
    return value


def synchronize(device: Any = None) -> None:
    """Wait for what was given to the device, as ``torch.cuda.synchronize`` does."""
    queue.wait_for(lambda given: not (given.kind == "send" and given.bytes <= BUFFERED))


def register_hook(self: torch.Tensor, hook: Callable[..., Any]) -> Any:
    """Wait for what a hook gives: autograd goes on with it in C++, where nobody looks."""
    return original["register_hook"](self, lambda slope: look(hook(slope)))


def touches(func: Any) -> bool:
    """Return whether a function reads or writes values of its tensors."""
    name = getattr(func, "__name__", "")
    if name in NO_LOOK or name.startswith("is_"):
        return False
    return not str(getattr(func, "__module__", "")).startswith("torch.distributed")


#: A backward, in which hooks may look: torch has left the mode to call it. It has the file name of
#: torch's, so that labkit does not take its frame for the program's.
_RUNNING = """
def _running(original, looks, look):
    def run_backward(*args, **named):
        look((args, named))
        with looks():
            return original["_engine_run_backward"](*args, **named)
    return run_backward
"""
exec(compile(_RUNNING, torch.autograd.__file__, "exec"), _names)


#: The frame between Python's own and the program's on a thread: it has the file name of Python's,
#: so that a thread is judged by what it runs.
_LOOKING = """
def _looking(run, looks):
    def looking():
        with looks:
            run()
    return looking
"""
exec(compile(_LOOKING, threading.__file__, "exec"), _names)


def start_thread(self: threading.Thread) -> None:
    """Start a thread that waits for tensors as the main one does."""
    self.run = _names["_looking"](self.run, Looks())  # type: ignore[method-assign]
    original["start_thread"](self)


# -- the watchdog's thread ----------------------------------------------------------------------


class _Sigevent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attribute", ctypes.c_void_p),
        ("padding", ctypes.c_char * 32),
    )


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


SIGEV_THREAD, CLOCK_MONOTONIC = 2, 1
_ticking = 0  #: the process that has the thread


def start_watchdog() -> None:
    """Make a thread of the C library wake up every ``WAKE_SECONDS`` forever, once per process."""
    global _ticking
    if _ticking == os.getpid():
        return
    _ticking = os.getpid()
    libc = ctypes.CDLL(None)
    does_nothing = ctypes.cast(libc.usleep, ctypes.c_void_p)  # called with 0
    event = _Sigevent(notify=SIGEV_THREAD, function=does_nothing.value)
    timer = ctypes.c_void_p()
    if libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError("timer_create has failed")
    every = _Timespec(0, int(WAKE_SECONDS * 1e9))
    if libc.timer_settime(timer, 0, ctypes.byref(_Itimerspec(every, every)), None):
        raise OSError("timer_settime has failed")


# -- the processor ------------------------------------------------------------------------------


def main_clock() -> int:
    """Return the main thread's processor time, which goes on where NCCL would spin."""
    spins = queue.connecting is not None
    return int(original["main_clock"]()) + (time.monotonic_ns() if spins else 0)


def main_runs() -> bool:
    return queue.connecting is not None or original["main_runs"]()


def in_torch(frame: Any) -> bool:
    """Take the frames of this module, under which a call connects, for torch's."""
    return queue.connecting is not None or original["in_torch"](frame)


# -- putting it in place ------------------------------------------------------------------------


def options_of(*args: Any, **named: Any) -> Any:
    """Return options for gloo's part of a group with one thread: collectives are done in order."""
    start_watchdog()
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_default_device()]
    timeout = named.get("timeout", args[0] if args else None)
    if isinstance(timeout, timedelta):
        options._timeout = timeout
    elif timeout is not None:  # options of the program's own
        options = timeout
    options._threads = 1
    return options


#: Where ranks wait for one another while a group is made. It has the file name of torch's, which
#: stands there without it, so that labkit sees the same meeting.
_MAKING = """
def _making(original, options_of):
    def make_gloo(self, store, rank, size, *args, **named):
        original["make_gloo"](self, store, rank, size, options_of(*args, **named))
    return make_gloo
"""
exec(compile(_MAKING, c10d.__file__, "exec"), _names)


#: It has the file name of torch's for the same reason.
_NAMING = """
def _naming(original, named):
    def make_group(ranks=None, timeout=None, backend=None, *args, **more):
        group = original["new_group"](ranks, timeout, backend, *args, **more)
        if backend is not None and hasattr(group, "group_name"):
            named.add(group)
        return group
    return make_group
"""
exec(compile(_NAMING, c10d.__file__, "exec"), _names)


def replace(owner: Any, name: str, ours: Any, known_as: str = "") -> None:
    original[known_as or name] = getattr(owner, name)
    setattr(owner, name, ours)


def install(options: Sequence[str]) -> None:
    """Give this process, and what it forks, the semantics of NCCL."""
    global connects
    if unknown := set(options) - {"on", "connect"}:
        raise ValueError(f"{VARIABLE} has {unknown}")
    connects = "connect" in options
    group, work = c10d.ProcessGroup, dist.Work
    for name in COLLECTIVES:
        if hasattr(group, name):
            replace(group, name, collective(name))
    for name in ("send", "recv"):
        replace(group, name, message(name))
    replace(group, "_start_coalescing", start_coalescing)
    replace(group, "_end_coalescing", end_coalescing)
    replace(group, "shutdown", shutdown)
    replace(work, "wait", _names["_waiting"](original, works))
    make_gloo = _names["_making"](original, options_of)
    replace(dist.ProcessGroupGloo, "__init__", make_gloo, "make_gloo")
    replace(c10d, "new_group", _names["_naming"](original, named))
    dist.new_group = c10d.new_group
    dist.ProcessGroupGloo.supports_coalescing = property(lambda self: True)  # type: ignore
    replace(torch.autograd, "_engine_run_backward", _names["_running"](original, Looks, look))
    replace(torch.Tensor, "register_hook", register_hook)
    replace(torch.cpu, "synchronize", synchronize)
    replace(os_threads, "main_clock", main_clock)
    replace(os_threads, "main_runs", main_runs)
    replace(device_wait, "in_torch", in_torch)
    replace(threading.Thread, "start", start_thread, "start_thread")
    Looks().__enter__()  # for the main thread, which outlives a fork
    device.queue = queue


if VARIABLE in os.environ:
    install(os.environ[VARIABLE].split())
