"""Wait for what has to have happened, and press the stop button when it has: never after a time.

A machine that many share makes such a test slow, never red. What must not take long is asked as an
order: a rank's death was told while the others were still in their sleep of a thousand seconds.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.base import times
from labkit.runtime import follow
from labkit.runtime.control import list_states
from labkit.runtime.watchdog import Watcher
from labkit.wire.state import RankState

#: Seconds after which something hangs: a machine with ten times as much to do is not so slow.
HANG_SECONDS = 120.0
#: The same as a bound of labkit's, for what a test asks of ranks that will answer.
PATIENT = times.Bound(HANG_SECONDS)
#: Seconds that a rank sleeps which the test ends: longer than anything waits for it.
LONG = 1000

#: Of what ranks do: whether it is what a test waits for.
Seen = Callable[[Sequence[RankState]], object]


def until(
    condition: Callable[[], object],
    seconds: float = HANG_SECONDS,
    instead: Callable[[], object] = lambda: "",
) -> None:
    """Wait until something is true; fail where it never is, with what is the case instead."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true within {seconds} s {instead()}".rstrip()
        time.sleep(0.02)


class Gate:
    """Where the code of a cell waits until the test opens it.

    Parameters
    ----------
    path
        A file that the test and the ranks see, not there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: A line of code that ends when the gate is open; it needs no import.
        self.wait = (
            f"while not __import__('os').path.exists({str(path)!r}): __import__('time').sleep(0.02)"
        )
        #: The same for a rank that computes meanwhile.
        self.compute = f"while not __import__('os').path.exists({str(path)!r}): pass"

        #: An expression: whether it is open.
        self.is_open = f"__import__('os').path.exists({str(path)!r})"
        #: A line of code that opens it.
        self.code_to_open = f"open({str(path)!r}, 'w').close()"

    def open(self) -> None:
        """Make all that wait go on, and all that come."""
        self._path.touch()


class Marks:
    """What ranks, or other processes, say that they have reached.

    Parameters
    ----------
    folder
        A folder that the test and the ranks see.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str = "rank") -> str:
        """Return a line of code that leaves a mark, named by the value of an expression."""
        return f"open({str(self._folder)!r} + f'/{{{name}}}.mark', 'w').close()"

    def count(self) -> int:
        """Return how many marks there are."""
        return len(list(self._folder.glob("*.mark")))


def busy_with(states: Mapping[int, str], at: Mapping[int, str] | None = None) -> Seen:
    """Return what tells whether ranks are in these states: ``{0: "waiting", 3: "running"}``.

    A rank runs before it comes to its first line: what counts on a line names it in ``at``, by what
    the line begins with.
    """

    def seen(found: Sequence[RankState]) -> bool:
        return all(found[rank].state == state for rank, state in states.items()) and all(
            found[rank].line.startswith(line) for rank, line in (at or {}).items()
        )

    return seen


def press_stop() -> None:
    """Press the stop button now: the main thread gets SIGINT."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def stop_pressed(when: Seen = lambda states: True) -> Iterator[list[Sequence[RankState]]]:
    """Press the stop button once, when what ranks do is what a test waits for.

    The notebook looks at them while it follows what it has sent, so this needs no other thread.
    The list has what they did at that look.
    """
    pressed: list[Sequence[RankState]] = []

    class Pressing(Watcher):
        def poll(self, *args: Any) -> Any:
            case = super().poll(*args)
            states = () if pressed else list_states(self.cluster, self.waits())
            if states and when(states):
                pressed.append(states)
                press_stop()
            return case

    follow.Watcher = Pressing  # type: ignore[attr-defined, misc]
    try:
        yield pressed
    finally:
        follow.Watcher = Watcher  # type: ignore[attr-defined, misc]


@contextlib.contextmanager
def once(condition: Callable[[], object], do: Callable[[], object]) -> Iterator[None]:
    """Do something, in a thread, as soon as something is true; fail where it never was."""
    over = threading.Event()
    done: list[bool] = []

    def work() -> None:
        while not condition():
            if over.wait(0.02):
                return
        do()
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert done, "what the test waits for has not happened"
