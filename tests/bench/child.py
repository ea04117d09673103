"""Run programs in processes of their own, read their answers, and end all they started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

PROGRAMS = Path(__file__).parent / "programs"
#: What starts a line with an answer; the rest of the line is JSON.
MARK = "BENCH "
#: Seconds for a program that has answered to end by itself.
END_SECONDS = 15.0
#: Seconds for what a killed program leaves behind to tidy up.
TIDY_SECONDS = 1.0
#: The variable by which a program's descendants are known, wherever they moved in the tree.
TOKEN = "LABKIT_BENCH_CHILD"


class BenchError(Exception):
    """Something that was to be measured did not answer."""


def program(name: str, *args: object) -> list[str]:
    """Return the command that runs one of ``programs`` in a fresh interpreter."""
    return [sys.executable, str(PROGRAMS / f"{name}.py"), *map(str, args)]


def torchrun(name: str, ranks: int) -> list[str]:
    """Return the command that runs one of ``programs`` on ``ranks`` ranks under torchrun."""
    flags = ["--standalone", f"--nproc-per-node={ranks}"]
    return [sys.executable, "-m", "torch.distributed.run", *flags, str(PROGRAMS / f"{name}.py")]


def environment(scratch: str) -> dict[str, str]:
    """Return the variables that every program gets, whichever side of a comparison it is on.

    One thread a rank is what labkit gives four ranks on up to seven cores, and what torchrun
    gives always; bytecode caches are what a learner has; IPython's files go to ``scratch``, not
    to the user's home; and the settings of a job that this runs in are none of its business.
    """
    strip = ("PYTHONDONTWRITEBYTECODE", "LABKIT_RANKS", "RANK", "WORLD_SIZE", "LOCAL_RANK",
             "MASTER_ADDR", "MASTER_PORT")  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if name not in strip}
    return {**kept, "OMP_NUM_THREADS": "1", "IPYTHONDIR": scratch}


class Child:
    """A program under way. A context manager: at its end, nothing that it started is left.

    Parameters
    ----------
    command
        The program and its arguments.
    seconds
        How long it may take for each answer.
    env
        Its variables; ours if None.
    heard
        If given, every line that is no answer is appended here, from stdout and stderr alike, with
        the moment it came at: what a person before the program would read.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        env: Mapping[str, str] | None = None,
        heard: list[tuple[float, str]] | None = None,
    ) -> None:
        self.seconds = seconds
        self.token = uuid.uuid4().hex  #: in the variables of all its processes, see ``marked``
        self._heard = heard
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.started = time.time()  #: the clock that the programs use too
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors if heard is None else subprocess.STDOUT,
            env={**(os.environ if env is None else env), TOKEN: self.token},
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream, contextlib.suppress(ValueError):
            for line in stream:
                if line.startswith(MARK):
                    self._lines.put(line.removeprefix(MARK))
                elif self._heard is not None:
                    self._heard.append((time.time(), line))
        self._lines.put(None)

    def answer(self) -> Any:
        """Return the next answer.

        Raises
        ------
        BenchError
            If none comes in time or the program ends without one; with what it wrote to stderr.
        """
        try:
            line = self._lines.get(timeout=self.seconds)
        except queue.Empty:
            raise BenchError(f"no answer within {self.seconds:.0f} s{self._tail()}") from None
        if line is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
            raise BenchError(f"ended ({self.process.returncode}) without an answer{self._tail()}")
        return json.loads(line)

    def ask(self, question: object) -> Any:
        """Write a line to the program's stdin and return its answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{question}\n")
            self.process.stdin.flush()
        except OSError:
            raise BenchError(f"ended before {question!r}{self._tail()}") from None
        return self.answer()

    def _tail(self) -> str:
        if self._heard is not None:
            text = "".join(line for _, line in self._heard).strip()
            return f"; its output ends:\n{text[-1500:]}" if text else ""
        # Not by seek and read: the program writes to the same open file, at the same position.
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), size, 0).decode(errors="replace").strip()
        return f"; stderr ends:\n{text[-1500:]}" if text else ""

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        """Make the program end by itself if all went well, else kill it; end whatever is left."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if kind is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        self.process.kill()
        end_marked(self.token)
        self.process.wait()
        self._reader.join(1)
        self._errors.close()


def time_to_answer(
    command: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None
) -> float:
    """Run a program whose answer is ``time.time()`` at the moment that counts.

    Returns the seconds from before its start to that moment; how it ends is not in it.
    """
    with Child(command, seconds=seconds, env=env) as child:
        return float(child.answer()) - child.started


def end_marked(token: str) -> None:
    """End every process that carries this token, however it left its parent's session.

    What notices its parent's end and tidies up, as a lab does, gets ``TIDY_SECONDS`` for it.
    """
    psutil.wait_procs(marked(token), TIDY_SECONDS)
    for _ in range(50):
        if not (found := marked(token)):
            return
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=0.2)
    raise BenchError(f"cannot end {found}")


def marked(token: str) -> list[psutil.Process]:
    """List the processes that carry this token."""
    return [process for process in psutil.process_iter() if _token_of(process) == token]


def is_alive(process: psutil.Process | int) -> bool:
    """Return whether a process runs; one that only waits for its parent to read its end does
    not."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _token_of(process: psutil.Process) -> str | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(TOKEN)
    except (psutil.Error, OSError):
        return None
