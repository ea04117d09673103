"""Press the stop button at random moments, in a process that drives a lab as a kernel does.

``python -m tests.support.stop_button --count 40 --seed 7`` writes one line of JSON per moment, and
one with ``"done"`` at the end. Cells run by IPython inside a running event loop, as in a kernel; a
thread sends SIGINT, some time after the cell has begun, once or several times in a row.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import labkit
from labkit.notebook import lab as labs

SIZE = 3
START = f"import labkit; lab = labkit.start({SIZE})"
KEEP = "%%px\nkept = 100 + rank"
#: What is done while the button is pressed: the cell, and the longest time until the press in
#: seconds (None: a little longer than the cell takes by itself).
KINDS: dict[str, tuple[str, float | None]] = {
    "short cell": ("%%px\nshort = kept + 1", None),
    "short cell that fails": ("%%px\n1 / (rank - 1)", None),
    "short cell that prints": ("%%px\nprint('x' * 2000)\nkept", None),
    "sleep": ("%%px\nimport time\ntime.sleep(60)", 1.0),
    "loop": ("%%px\nwhile True:\n    pass", 1.0),
    "collectives": ("%%px\nfor _ in range(10**9):\n    dist.all_reduce(torch.ones(3))", 1.0),
    "few collectives": ("%%px\nfor _ in range(50):\n    dist.all_reduce(torch.ones(3))", None),
    "messages": (
        "%%px\nt = torch.ones(3)\nwhile True:\n"
        "    if rank == 0:\n        dist.send(t, 1)\n    elif rank == 1:\n        dist.recv(t, 0)\n"
        "    else:\n        import time; time.sleep(0.01)",
        1.0,
    ),
    "a rank is missing": (
        "%%px\nimport time\nif rank:\n    dist.barrier()\nelse:\n    time.sleep(60)",
        1.0,
    ),
    "regular expression": ("%%px --ranks 1\nimport re\nre.match('(a+)+b', 'a' * 60)", 1.0),
    "C code": ("%%px --ranks 1\nsum(range(40_000_000))", 1.0),
    "function": ("lab.run(__import__('os').getpid)", None),
    "read": ("lab['kept']", None),
    "write": ("lab['written'] = 3", None),
    "status": ("lab.status()", None),
    "reset": ("lab.reset()", None),
    "restart of one": ("lab.restart(ranks=[1])", None),
    "restart": ("lab.restart()", None),
    "stop": ("lab.stop()", None),
    "start": (START, None),
    "start again": (START, None),
}
#: Kinds after which ranks may have lost their variables: all, or these.
FRESH: dict[str, list[int]] = {
    "restart of one": [1],
    "restart": list(range(SIZE)),
}


@dataclass
class Moment:
    """One press, and what came of it."""

    kind: str
    after: float  #: seconds from the beginning of the cell to the first press
    presses: int
    pressed: bool  #: it came while the cell ran
    back: float  #: seconds from the first press to the end of the cell
    next: float  #: seconds that the next ``%%px`` took
    raised: str
    wrong: str  #: what is wrong afterwards, "" if nothing


class Button:
    """Sends SIGINT to this process, from a thread, until it is put away."""

    def __init__(self, delays: list[float]) -> None:
        self.delays = delays
        self.first = 0.0
        self._armed, self._away = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._press, daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """Make its time run; KeyboardInterrupt may come right now."""
        self._armed.set()

    def _press(self) -> None:
        self._armed.wait()
        for delay in self.delays:
            if self._away.wait(delay):
                return
            self.first = self.first or time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

    def put_away(self) -> None:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                self._away.set()
                self._armed.set()
                self._thread.join()
                time.sleep(0.001)  # what was sent has arrived
                return


class Kernel:
    """A shell whose cells run in the main thread, with what they write thrown away."""

    def __init__(self) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        self.shell = InteractiveShell.instance(config=config)
        self.nothing = io.StringIO()

    def run(self, cell: str) -> BaseException | None:
        """Run a cell; return what it raised."""
        before, sys.stdout = sys.stdout, self.nothing
        try:
            result = self.shell.run_cell(cell)
            return result.error_before_exec or result.error_in_exec
        except KeyboardInterrupt as pressed:  # in IPython's own code
            return pressed
        finally:
            sys.stdout = before
            self.nothing.seek(0)
            self.nothing.truncate()

    def must(self, cell: str) -> float:
        """Run a cell that has to work; return the seconds it took."""
        began = time.monotonic()
        error = self.run(cell)
        if error is not None:
            raise AssertionError(f"{cell!r}: {type(error).__name__}: {error}")
        return time.monotonic() - began

    def kept(self) -> list[Any]:
        """Return what each rank has in ``kept``, None where nothing."""
        self.must("%%px\nkept_now = globals().get('kept')")
        self.must("kept_now = lab['kept_now']")
        return self.shell.user_ns["kept_now"]


def processes() -> list[str]:
    """Name the processes below this one that are labkit's."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
    return found


def folders() -> list[str]:
    return [str(path) for path in Path(tempfile.gettempdir()).glob("labkit-*")]


class Trial:
    """Press the button at moments that a seed decides."""

    def __init__(self, seed: int, kinds: list[str]) -> None:
        self.random = random.Random(seed)
        self.kernel = Kernel()
        self.kinds = kinds
        self.lengths: dict[str, float] = {}
        self.usual: int | None = None  # processes of a lab that runs

    def moments(self, count: int) -> Iterator[Moment]:
        order: list[str] = []
        for _ in range(count):
            if not order:
                order = self.random.sample(self.kinds, len(self.kinds))
            yield self.one(order.pop())

    def ready(self, kind: str) -> None:
        """Bring about what the kind begins with."""
        if kind == "start":
            if labs.current() is not None:
                self.kernel.must("lab.stop()")
            return
        if labs.current() is None:
            self.kernel.must(START)
            self.usual = self.usual or len(processes())
        self.kernel.must(KEEP)

    def length(self, kind: str) -> float:
        """Return the longest time until the press."""
        cell, limit = KINDS[kind]
        if limit is not None:
            return limit
        if kind not in self.lengths:
            began = time.monotonic()
            self.kernel.run(cell)
            self.lengths[kind] = 1.1 * (time.monotonic() - began)
            self.ready(kind)
        return self.lengths[kind]

    def one(self, kind: str) -> Moment:
        self.ready(kind)
        again = self.random.random() < 0.4
        presses = self.random.choice([2, 2, 3, 5]) if again else 1
        delays = [self.random.uniform(0, self.length(kind))]
        delays += [self.random.uniform(0, 0.05) for _ in range(presses - 1)]
        button = Button(delays)
        try:
            button.arm()
            error = self.kernel.run(KINDS[kind][0])
        except KeyboardInterrupt as pressed:  # before the cell began
            error = pressed
        while True:  # the rest of the presses may come here
            with contextlib.suppress(KeyboardInterrupt):
                ended = time.monotonic()
                break
        button.put_away()
        pressed = bool(button.first)
        back = max(0.0, ended - button.first) if pressed else 0.0
        name = "" if error is None else type(error).__name__
        moment = Moment(kind, round(delays[0], 4), presses, pressed, round(back, 3), 0.0, name, "")
        try:
            if not isinstance(error, KeyboardInterrupt | labkit.RankError | None):
                raise AssertionError(f"raised {name}: {error}")
            self.check(kind, moment)
        except AssertionError as failed:
            moment.wrong = str(failed)
        if moment.wrong:
            self.again()
        return moment

    def check(self, kind: str, moment: Moment) -> None:
        """See that nothing is lost and nothing left."""
        if labs.current() is None:
            assert kind in ("start", "start again", "stop"), "there is no lab"
            assert not processes(), f"left: {processes()}"
            assert not folders(), f"left: {folders()}"
            self.kernel.must(START)
            self.kernel.must(KEEP)
            return
        self.kernel.shell.user_ns["lab"] = labs.current()
        moment.next = round(self.kernel.must("%%px\ndist.barrier()"), 3)
        fresh = FRESH.get(kind, [])
        if kind in ("start", "start again", "stop"):
            fresh = list(range(SIZE))
        found = self.kernel.kept()
        for rank in range(SIZE):
            if rank not in fresh:
                assert found[rank] == 100 + rank, f"rank {rank} lost its variables: {found}"
        assert len(folders()) == 1, folders()
        assert self.usual in (None, len(processes())), processes()

    def again(self) -> None:
        """Begin anew after something went wrong."""
        with contextlib.suppress(BaseException):
            if labs.current() is not None:
                self.kernel.run("labkit.notebook.lab.current().stop()")
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    trial = Trial(args.seed, args.kinds.split(","))
    for moment in trial.moments(args.count):
        print(json.dumps(asdict(moment)), flush=True)
    trial.again()
    print(json.dumps({"done": args.count}), flush=True)


if __name__ == "__main__":
    asyncio.new_event_loop().run_until_complete(main())
