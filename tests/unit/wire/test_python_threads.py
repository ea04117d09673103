"""Which threads wait for another one, and which only seem to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import importlib.util
import io
import logging.handlers
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from tqdm import tqdm

from labkit.wire import python_threads


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[int]:
    """Run something in a thread; give its identifier once it stands still."""
    running = threading.Thread(target=work, daemon=True, name="worker {0}")
    running.start()
    assert running.ident is not None
    seen = None
    for _ in range(500):
        frame = sys._current_frames()[running.ident]
        if seen == (frame, frame.f_lasti):
            break
        seen = (frame, frame.f_lasti)
        time.sleep(0.01)
    yield running.ident


@contextmanager
def set_at_last(event: threading.Event) -> Iterator[None]:
    """Let what waits for an event go on, also after an assertion that has failed."""
    try:
        yield
    finally:
        event.set()


def parked(ident: int) -> bool:
    return python_threads.is_parked(sys._current_frames()[ident])


def test_a_wait_without_a_limit_is_parked_and_one_with_a_limit_is_not():
    event = threading.Event()
    with thread(event.wait) as endless, thread(lambda: event.wait(60)) as limited:
        assert parked(endless)
        assert not parked(limited)
        event.set()


def test_a_thread_that_waits_for_the_end_of_another_is_parked():
    event = threading.Event()
    other = threading.Thread(target=event.wait, daemon=True)
    other.start()
    with thread(other.join) as waiting:
        assert parked(waiting)
        event.set()
    other.join()


def test_a_thread_that_was_notified_is_not_parked_although_it_did_not_run_yet():
    condition = threading.Condition()

    def wait() -> None:
        with condition:
            condition.wait()

    with thread(wait) as waiting:
        assert parked(waiting)
        with condition:  # it needs this lock before it can go on
            condition.notify()
            assert not parked(waiting)
            time.sleep(0.05)
            assert not parked(waiting)


@pytest.mark.parametrize("waits", [True, False])
def test_a_pool_without_work_is_not_listed_and_one_with_work_is(waits):
    event = threading.Event()
    with (
        concurrent.futures.ThreadPoolExecutor(1, "pool") as pool,
        set_at_last(event),
    ):
        pool.submit(int).result()
        if not waits:
            pool.submit(event.wait)
            pool.submit(int)
        time.sleep(0.05)
        listed = [s.name for s in python_threads.look({threading.get_ident()})]
        assert ("pool_0" in listed) == (not waits)


def test_a_worker_whose_work_has_come_is_listed_although_it_did_not_take_it_yet():
    with concurrent.futures.ThreadPoolExecutor(1, "pool") as pool:
        pool.submit(int).result()
        time.sleep(0.05)
        (worker,) = pool._threads
        assert worker.ident is not None
        frame = sys._current_frames()[worker.ident]
        own = list(python_threads.frames(frame))
        assert python_threads._is_harmless(own, worker)
        queue = frame.f_locals["work_queue"]
        switch = sys.getswitchinterval()
        sys.setswitchinterval(60)  # the worker gets no turn before it is looked at
        try:
            queue.put(None)
            assert not queue.empty()
            assert not python_threads._is_harmless(own, worker)
        finally:
            sys.setswitchinterval(switch)


# -- whose threads matter -------------------------------------------------------------------------


def listed() -> set[str]:
    """Name the threads that may do something."""
    return {seen.name for seen in python_threads.look({threading.get_ident()})}


def load(folder: Path, name: str) -> ModuleType:
    """Import a module that runs any function it is given, from a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text("def run(function, *args):\n    return function(*args)\n")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_thread_of_the_users_is_listed_by_its_name() -> None:
    event = threading.Event()
    with thread(lambda: event.wait()) as ident:
        (seen,) = (s for s in python_threads.look({threading.get_ident()}) if s.ident == ident)
        assert seen.name == "worker {0}"
        assert list(python_threads.frames(seen.frame))
        assert ident not in {s.ident for s in python_threads.look({ident})}
        event.set()


def test_a_thread_that_a_library_started_is_listed_unless_it_is_known(tmp_path: Path) -> None:
    """Nobody knows what it does: it may call a function of torch's."""
    event = threading.Event()
    unknown = load(tmp_path / "site-packages" / "horovod", "ops")
    known = load(tmp_path / "site-packages" / "ipykernel", "heartbeat")
    with (
        _started(target=unknown.run, args=(event.wait,), name="unknown"),
        _started(target=known.run, args=(event.wait,), name="known"),
    ):
        assert listed() & {"unknown", "known"} == {"unknown"}
        event.set()


def test_a_thread_of_a_known_library_that_runs_the_users_code_is_listed(tmp_path: Path) -> None:
    event = threading.Event()
    known = load(tmp_path / "site-packages" / "ipykernel", "heartbeat")
    with _started(target=known.run, args=(lambda: event.wait(),), name="calls back"):
        assert "calls back" in listed()
        event.set()


@contextmanager
def _started(**how: object) -> Iterator[None]:
    """Run a thread that ends by itself, and wait until it does not move."""
    running = threading.Thread(daemon=True, **how)  # type: ignore[arg-type]
    running.start()
    time.sleep(0.05)
    yield
    running.join(5)


def test_a_timer_is_judged_by_what_it_will_call(tmp_path: Path) -> None:
    ours = load(tmp_path / "site-packages" / "labkit", "clock")
    named = {"users": threading.Timer(60, listed), "ours": threading.Timer(60, ours.run, (int,))}
    for name, timer in named.items():
        timer.daemon, timer.name = True, name
        timer.start()
    try:
        assert listed() & set(named) == {"users"}
    finally:
        for timer in named.values():
            timer.cancel()


def test_what_watches_progress_or_writes_logs_is_not_listed() -> None:
    before = listed()
    listener = logging.handlers.QueueListener(queue.SimpleQueue())
    listener.start()
    with tqdm(total=2, file=io.StringIO(), miniters=1) as bar:
        assert bar.monitor is not None
        assert bar.monitor.is_alive()
        time.sleep(0.05)
        assert listed() <= before
    listener.stop()


def test_labkits_own_thread_is_not_listed() -> None:
    """It is one that labkit's code began; labkit's frames also stand above a user's call."""
    event = threading.Event()
    code = compile("def run(wait):\n    wait()\n", python_threads.__file__, "exec")
    space: dict[str, Callable[..., object]] = {}
    exec(code, space)
    with _started(target=space["run"], args=(event.wait,), name="ours"):
        assert "ours" not in listed()
        event.set()


class Callee:
    def method(self) -> None:
        """Do nothing."""

    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (listed, True),
        (functools.partial(functools.partial(parked), 1), True),
        (Callee().method, True),
        (Callee.method, True),
        (Callee(), True),
        (threading.Event().set, True),  # somebody may wait for it
        (threading.Lock().release, True),
        (queue.SimpleQueue().put, True),
        (asyncio.sleep, False),
        (python_threads.look, False),
        (None, False),
    ],
)
def test_what_may_issue_something_when_it_is_called_later(function: object, expected: bool) -> None:
    assert python_threads.may_issue(function) is expected


def test_a_cell_is_the_users_in_whatever_folder_the_notebook_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as that of an installed labkit's own notebooks: the name of a cell is no path."""
    for folder in (os.path.dirname(threading.__file__), os.path.dirname(__file__)):
        monkeypatch.chdir(folder)
        assert python_threads.package("<ipython-input-1>") == ""


def test_what_the_course_brings_is_the_users() -> None:
    package = Path(python_threads.__file__).parents[1]
    for file in ("_course/notebooks/race.py", "course/exercises/nb03/ex1.py"):
        assert python_threads.package(str(package / file)) == ""
    assert python_threads.package(str(package / "course/check.py")) == "labkit"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/x/lib/python3.11/site-packages/torch/autograd/graph.py", "torch"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("<frozen importlib._bootstrap>", "python"),
        (threading.__file__, "python"),
        (python_threads.__file__, "labkit"),
        ("/home/me/train.py", ""),
        ("/tmp/ipykernel_7/123.py", ""),
        ("<ipython-input-1>", ""),
    ],
)
def test_the_package_of_a_file(file: str, expected: str) -> None:
    assert python_threads.package(file) == expected


Future = concurrent.futures.Future[int]


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (lambda future, given: future.result(), True),
        (lambda future, given: future.result(timeout=9), False),
        (lambda future, given: given.get(), True),
        (lambda future, given: given.get(timeout=9), False),
        (lambda future, given: time.sleep(0.3), False),
    ],
)
def test_what_waits_for_another_thread_without_a_limit(
    wait: Callable[[Future, queue.Queue[int]], object], expected: bool
) -> None:
    future, given = Future(), queue.Queue[int]()
    with thread(lambda: wait(future, given)) as ident:
        assert parked(ident) is expected
        future.set_result(1)
        given.put(1)
