"""Run a learner's notebook in its sandbox, and try its answers: the first program in there.

Nothing that this process says is believed, since the learner's cells run as the same user. What it
hands out are the values that answers gave; whether they are right is decided outside, where no
learner's code has run (:mod:`labkit.teaching.judge_answers`). It hands each out as soon as it is
there, into a file that no cell can open: one that deletes everything takes no earlier answer back.

Cells are executed as front ends do it, by messages, and what they print is not asked for: a cell
that prints without end fills nothing.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from ..base import times
from ..launch import private_folder, zygote_client
from ..wire import processes
from . import records
from .limits import set_limits
from .sandbox import Limits
from .usage import ServedTime

#: The file of what is to be done, in the folder of what is asked.
PLAN = "plan.json"
#: What a kernel runs to try an answer. Names of the notebook stay as they are.
_TRY = "__import__('labkit.teaching.try_answer', fromlist=['main']).main({asked!r}, {out!r})"
#: What it runs after a cell that did not end.
_RECOVER = "__import__('labkit.teaching.try_answer', fromlist=['recover']).recover()"
#: Seconds between looks whether the kernel still lives.
_ALIVE = 1.0


class KernelGone(Exception):
    """Say that a kernel has ended, or cannot be interrupted; the notebook ends with it."""


class Kernel:
    """The kernel of a notebook, asked over Unix sockets."""

    def __init__(self, folder: Path) -> None:
        self._kept = private_folder.PrivateFolder()  # it is removed with this object
        self.folder = self._kept.path
        sockets = str(self.folder / "kernel")
        self._manager = KernelManager(kernel_name="python3", transport="ipc", ip=sockets)
        self._manager.start_kernel(cwd=str(folder))
        self._client: Any = self._manager.blocking_client()
        self._client.start_channels(iopub=False, stdin=False, hb=False)
        self._wait(self._client.kernel_info(), times.GRADED_KERNEL)

    def run(self, code: str, seconds: float, *, is_cell: bool = True) -> float:
        """Run code; an error in it ends it like any other. Return 0 if it ended within so many
        seconds of :class:`.usage.ServedTime`, else after how many of any clock it was interrupted.

        Raises
        ------
        KernelGone
            If no more can be run.
        """
        begun = time.monotonic()
        request = self._client.execute(
            code, silent=not is_cell, store_history=is_cell, allow_stdin=False, stop_on_error=False
        )
        if self._wait(request, seconds):
            return 0.0
        took = time.monotonic() - begun
        self._manager.interrupt_kernel()
        if self._wait(request, times.GRADED_INTERRUPTED.seconds()):
            return took
        raise KernelGone("it could not be interrupted")

    def _wait(self, request: str, seconds: float) -> bool:
        """Wait for the reply to a request; return whether it came."""
        served = ServedTime(os.getpid())
        while (left := seconds - served.seconds()) > 0:
            try:
                reply = self._client.get_shell_msg(timeout=min(left, _ALIVE))
            except queue.Empty:
                if not self._manager.is_alive():
                    raise KernelGone("the notebook's kernel ended") from None
                continue
            if reply["parent_header"].get("msg_id") == request:
                return True
        return False

    def end(self) -> None:
        """End it; what it has started ends with the sandbox."""
        self._manager.shutdown_kernel(now=True)


def main(asked: Path, out: int, limits: Limits) -> None:
    """Do what the plan says; write what answers gave, and what went wrong, to an open file."""
    set_limits(limits)
    processes.hide()
    plan = json.loads((asked / PLAN).read_text(encoding="utf-8"))
    with open(out, "wb", buffering=0) as told, zygote_client.running(os.environ):
        kernel = Kernel(Path(plan["folder"]))
        for step in plan["steps"]:
            place = step["place"]
            try:
                if "source" in step:
                    if took := kernel.run(step["source"], limits.cell):
                        records.note(told, f"{place} was interrupted after {took:.0f} s")
                        kernel.run(_RECOVER, limits.cell, is_cell=False)
                    continue
                answer = kernel.folder / step["ask"]
                code = _TRY.format(asked=str(asked / step["ask"]), out=str(answer))
                if took := kernel.run(code, limits.cell, is_cell=False):
                    records.note(told, f"{place} was interrupted after {took:.0f} s")
                records.answer(told, step["ask"], answer)
            except KernelGone as gone:
                records.note(told, f"{gone} in {place}; what comes after it did not run")
                break
        kernel.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Limits(float(sys.argv[3]), int(sys.argv[4])))
