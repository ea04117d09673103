"""Record what this rank does, with ``torch.profiler``.

Torch marks data loading, the optimizer, autograd's nodes and every collective by itself; ``marks``
adds forwards and backwards. Torch's own trace has all that: reading it takes a tenth of the time
that ``events()`` takes, and its times are those of the system's clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import json
import linecache
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ...base import times
from ...base.errors import LabError
from ...wire.recording import Recording
from .. import leaving, process_group, tracebacks
from ..observe import device, flight_recorder, p2p_record
from ..torch_internals import profiling
from . import classify, clocks, marks


def record_call(
    function: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str,
    hosts: Mapping[int, str],
) -> Recording:
    """Record a function or, if it is None, a cell: ``args`` are its text and its name then."""
    rank = int(tracebacks.get_shell().user_ns["rank"])
    code = partial(function, *args, **kwargs) if function else _compile(*args)
    return run(rank, leaving.until_left(code), key, hosts)


def _compile(text: str, name: str) -> Callable[[], None]:
    """Return a cell, to run among the names of the rank's other cells."""
    shell = tracebacks.get_shell()
    text = shell.transform_cell(text)
    # for errors to quote
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    code = compile(text, name, "exec", dont_inherit=True)
    return lambda: exec(code, shell.user_ns)


def run(rank: int, code: Callable[[], Any], key: str, hosts: Mapping[int, str]) -> Recording:
    """Run ``code()`` here and return what was recorded meanwhile.

    Parameters
    ----------
    key
        A name for this recording that no other has.
    hosts
        rank -> its host, of all ranks that record: they begin together.

    Raises
    ------
    LabError
        If a profiler runs here already.
    """
    if profiling.is_recording():
        raise LabError("A torch profiler runs on this rank already; stop it first.")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its news are on stderr
    noted = p2p_record.Notes(threading.get_ident())
    stopped: list[int] = []
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_initialized():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        offset, error, notes = _meet_others(rank, key, hosts)
        start = time.time_ns()
        with _noting(noted, profiler, stopped), marks.marking() as marked:
            code()
            device.finish()  # what waits for other ranks, so that a wait that never ends is seen
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
        stop = time.time_ns()
    if stopped:
        stop = min(stop, *stopped)
        notes.append(f"The recording stopped after {times.RECORDING:g} s; the code ran to its end.")
    trace = _export(profiler)
    material = classify.Material(
        main=threading.get_native_id(),
        raws=classify.read(json.loads(trace)),
        marked=marked,
        waits=noted.waits,
        entries=[e for e in flight_recorder.entries() if e.created >= start],
        messages=noted.messages,
        groups={name: list(ranks) for name, (_, ranks) in flight_recorder.keys().items()},
    )
    return Recording(
        rank=rank,
        start=start,
        stop=stop,
        events=[e for e in classify.sort(material) if e.stop >= start and e.start <= stop],
        torch=gzip.compress(trace.encode(), 1),
        offset=offset,
        error=error + times.PROFILER_NANOSECONDS,
        notes=notes,
    )


def _export(profiler: profile) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return path.read_text(errors="replace")


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


# -- the time limit -----------------------------------------------------------------------------


@contextlib.contextmanager
def _noting(noted: p2p_record.Notes, profiler: profile, stopped: list[int]) -> Iterator[None]:
    """Record messages and waits for the length of a ``with``, but no longer than
    ``times.RECORDING``: then the profiler pauses too, and the time goes into ``stopped``."""

    def pause() -> None:
        if p2p_record.notes is noted:
            stopped.append(time.time_ns())
            p2p_record.notes = None
            with _quiet():  # it warns of GPUs
                profiler.toggle_collection_dynamic(False, [ProfilerActivity.CPU])

    limit = threading.Timer(times.RECORDING, partial(_in_main, pause))
    limit.daemon = True
    p2p_record.notes = noted
    limit.start()
    try:
        yield
    finally:
        limit.cancel()
        p2p_record.notes = None


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
