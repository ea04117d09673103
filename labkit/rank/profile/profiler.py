"""Record what this rank does, with torch's profiler.

Torch marks data loading, the optimizer and every collective by itself; ``marks`` adds forward and
backward for the time of a recording. Operators are left out unless they are asked for: each would
cost about a microsecond, and later 1.5 kB and ten microseconds more.
"""

from __future__ import annotations

import contextlib
import ctypes
import linecache
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.autograd.profiler import record_function

from ... import times
from ...errors import LabError
from ...wire.recording import Recording
from .. import device, leaving, process_group, tracebacks
from ..observe import flight_recorder, p2p_record
from ..torch_internals import profiling
from . import classify, clocks, marks

#: Events of torch that a rank keeps for the trace, the first ones.
MAX_TORCH_EVENTS = 100_000
#: Marks from which the profiler's clock is read against the system's: the tightest one counts.
CLOCK_MARKS = 8
_warm: set[bool] = set()


def record_call(
    function: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str,
    hosts: Mapping[int, str],
    operators: bool,
) -> Recording:
    """Record a function or, if it is None, a cell: ``args`` are its text and its name then."""
    rank = int(tracebacks.get_shell().user_ns["rank"])
    code = partial(function, *args, **kwargs) if function else _compile(*args)
    return run(rank, leaving.until_left(code), key, hosts, operators=operators)


def _limit(operators: bool) -> float:
    """Return after how many seconds a recording stops by itself."""
    return times.RECORDING_OPERATORS if operators else times.RECORDING


def _compile(text: str, name: str) -> Callable[[], None]:
    """Return a cell, to run among the names of the rank's other cells."""
    shell = tracebacks.get_shell()
    text = shell.transform_cell(text)
    # for errors to quote
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    code = compile(text, name, "exec", dont_inherit=True)
    return lambda: exec(code, shell.user_ns)


def run(
    rank: int, code: Callable[[], Any], key: str, hosts: Mapping[int, str], *, operators: bool
) -> Recording:
    """Run ``code()`` here and return what was recorded meanwhile.

    Parameters
    ----------
    rank
        This rank.
    key
        A name for this recording that no other has.
    hosts
        rank -> its host, of all ranks that record: they begin together.
    operators
        Whether to record each operator of torch too.

    Raises
    ------
    LabError
        If a profiler runs here already.
    """
    if profiling.is_recording():
        raise LabError("A torch profiler runs on this rank already; stop it first.")
    _warm_up()
    with _Profiler(operators=operators) as profiler:
        moments = profiler.read_clock()
        offset, error, notes = _meet_others(rank, key, hosts)
        start = time.time_ns()
        with marks.marking():
            code()
            _finish_gpu()
        stop = time.time_ns()
        moments += profiler.read_clock()
    material, grain = profiler.material(moments, start)
    if profiler.stopped:
        stop = min(stop, profiler.stopped)
        notes.append(
            f"The recording stopped after {_limit(operators):g} s; the code ran to its end."
        )
    raws = material.raws
    if len(raws) > MAX_TORCH_EVENTS:
        notes.append(f"A saved trace has the first {MAX_TORCH_EVENTS:,} events of torch only.")
    return Recording(
        rank=rank,
        start=start,
        stop=stop,
        events=[e for e in classify.sort(material) if e.stop >= start and e.start <= stop],
        torch=classify.for_trace(raws, _thread_names(), MAX_TORCH_EVENTS),
        offset=offset,
        error=error + grain,
        notes=notes,
    )


def _warm_up() -> None:
    """Use the profiler once, so that what it loads and prepares is in no recording."""
    gpu = _on_gpu()
    if gpu in _warm:
        return
    profiling.be_quiet()
    with _Profiler(operators=False) as profiler:
        profiler.read_clock()
    _warm.add(gpu)


def _meet_others(rank: int, key: str, hosts: Mapping[int, str]) -> tuple[int, int, list[str]]:
    """Compare clocks and begin together, through the group's store if the lab has made one.

    Returns what to add to this host's clock, how far off that may be (ns), and what to tell.
    """
    if len(hosts) == 1:
        return 0, 0, []
    store = process_group._store
    if store is None:
        unknown = len(set(hosts.values())) > 1
        return 0, 0, ["The hosts' clocks were not compared."] if unknown else []
    try:
        offset, error = clocks.align(store, key, rank, hosts)
        clocks.meet(store, key, len(hosts))
    except RuntimeError:
        return 0, 0, ["The ranks did not begin together."]
    return offset, error, []


def _on_gpu() -> bool:
    return torch.cuda.is_initialized()


def _finish_gpu() -> None:
    device.finish()  # what waits for other ranks, so that a wait in vain is seen
    if _on_gpu():
        torch.cuda.synchronize()


def _thread_names() -> dict[int, str]:
    """Name this process's threads by their number: main, and what the others call themselves."""
    names = {}
    for task in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ():
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            names[int(task)] = f"{file.read().strip()} {task}"
    names[threading.get_native_id()] = "main"
    return names


# -- the profiler -------------------------------------------------------------------------------


class _Profiler:
    """Torch's profiler and our notes, on for the length of a ``with``, and off after it."""

    def __init__(self, *, operators: bool) -> None:
        self.operators = operators
        self.stopped = 0  #: when the limit stopped it, nanoseconds; 0 if it did not
        self.on = False
        self._recorder = profiling.Recorder(gpu=_on_gpu(), operators=operators)
        self._raws: list[profiling.Raw] = []
        self._notes: p2p_record.Notes | None = None

    def __enter__(self) -> _Profiler:
        self._recorder.start()
        self.on = True
        self._notes = p2p_record.notes = p2p_record.Notes(threading.get_ident())
        self._limit = threading.Timer(_limit(self.operators), partial(_in_main, self._stop_early))
        self._limit.daemon = True
        self._limit.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.on = False
        self._limit.cancel()
        p2p_record.notes = None
        self._raws = self._recorder.stop()

    def _stop_early(self) -> None:
        if self.on and not self.stopped:
            self.stopped = time.time_ns()
            p2p_record.notes = None
            with _quiet():  # it warns of GPUs
                self._recorder.pause()

    def read_clock(self) -> list[tuple[int, int]]:
        """Mark some moments in the profile; return the system's time before and after each."""
        moments = []
        for _ in range(CLOCK_MARKS):
            before = time.time_ns()
            with record_function(classify.CLOCK):
                pass
            moments.append((before, time.time_ns()))
        return moments

    def material(self, moments: list[tuple[int, int]], begin: int) -> tuple[classify.Material, int]:
        """Return what was recorded since ``begin``, in the system's time, and how far off that
        may be (ns): the moments at the end tell how far the two clocks have moved apart.
        """
        raws = self._raws
        clock = [r for r in raws if r.name == classify.CLOCK]
        # the first ones only, if the limit stopped it
        tight = [
            (after - before, (before + after) // 2 - (raw.start + raw.stop) // 2)
            for (before, after), raw in zip(moments, clock, strict=False)
        ]
        shift, grain = (0, 0)
        if tight:
            first, last = min(tight[:CLOCK_MARKS]), min(tight[CLOCK_MARKS:] or tight)
            shift = (first[1] + last[1]) // 2
            grain = max(first[0], last[0]) // 2 + abs(first[1] - last[1]) // 2
        raws = [r._replace(start=r.start + shift, stop=r.stop + shift) for r in raws]
        notes = self._notes
        assert notes is not None
        material = classify.Material(
            main=threading.get_native_id(),
            raws=[r for r in raws if r.stop >= begin],
            waits=notes.waits,
            entries=[e for e in flight_recorder.entries() if e.created >= begin],
            messages=notes.messages,
            groups={name: list(ranks) for name, (_, ranks) in flight_recorder.keys().items()},
        )
        return material, grain


# -- the time limit -----------------------------------------------------------------------------

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
#: Callbacks that Python has not called yet: it does not own them.
_queued: list[Any] = []


def _in_main(function: Callable[[], None]) -> None:
    """Have the main thread call a function between two steps of what it runs.

    The profiler obeys only the thread that it watches, which runs the learner's code.
    """

    def call(_: object) -> int:
        _queued.remove(callback)
        function()
        return 0

    callback = _CALLBACK(call)
    _queued.append(callback)
    ctypes.pythonapi.Py_AddPendingCall(callback, None)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what C++ writes to stderr from being seen."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
