"""Run a learner's notebook in its sandbox, and try its answers: the first program in there.

Nothing that this process says is believed, since the learner's cells run as the same user. What it
hands out are the values that answers gave; whether they are right is decided outside, where no
learner's code has run (:mod:`labkit.teaching.judge_answers`).

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
from .limits import set_limits
from .sandbox import Limits

#: The file of what is to be done, in the folder of what is asked; that of what went wrong.
PLAN, NOTES = "plan.json", "notes.jsonl"
#: What a kernel runs to try an answer. Names of the notebook stay as they are.
_TRY = "__import__('labkit.teaching.try_answer', fromlist=['main']).main({asked!r}, {out!r})"
#: Seconds between looks whether the kernel still lives.
_ALIVE = 1.0


class KernelGone(Exception):
    """Say that a kernel has ended, or cannot be interrupted; the notebook ends with it."""


class Kernel:
    """The kernel of a notebook, asked over Unix sockets."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder.PrivateFolder()
        sockets = str(self._folder.path / "kernel")
        self._manager = KernelManager(kernel_name="python3", transport="ipc", ip=sockets)
        self._manager.start_kernel(cwd=str(folder))
        self._client: Any = self._manager.blocking_client()
        self._client.start_channels(iopub=False, stdin=False, hb=False)
        self._wait(self._client.kernel_info(), times.GRADED_KERNEL)

    def run(self, code: str, seconds: float, *, is_cell: bool = True) -> bool:
        """Run code; return whether it ended in time. An error in it ends it like any other.

        Raises
        ------
        KernelGone
            If no more can be run.
        """
        request = self._client.execute(
            code, silent=not is_cell, store_history=is_cell, allow_stdin=False, stop_on_error=False
        )
        if self._wait(request, seconds):
            return True
        self._manager.interrupt_kernel()
        if self._wait(request, times.GRADED_INTERRUPTED.seconds()):
            return False
        raise KernelGone("it could not be interrupted")

    def _wait(self, request: str, seconds: float) -> bool:
        """Wait for the reply to a request; return whether it came."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
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


def main(asked: Path, out: Path, limits: Limits) -> None:
    """Do what the plan says; write down what went wrong on the way."""
    set_limits(limits)
    plan = json.loads((asked / PLAN).read_text(encoding="utf-8"))
    with (
        open(out / NOTES, "w", encoding="utf-8") as notes,
        zygote_client.running(os.environ),
    ):
        kernel = Kernel(Path(plan["folder"]))
        for number, step in enumerate(plan["steps"]):
            place = step["place"]
            try:
                if "source" in step:
                    if not kernel.run(step["source"], limits.cell):
                        _note(notes, f"{place} was interrupted after {limits.cell:g} s")
                    continue
                told = out / f"{step['ask']}.{number}"
                code = _TRY.format(asked=str(asked / step["ask"]), out=str(told))
                if not kernel.run(code, limits.cell, is_cell=False):
                    _note(notes, f"the trial of {step['ask']} was interrupted")
            except KernelGone as gone:
                _note(notes, f"{gone} in {place}, and the cells after it did not run")
                break
        kernel.end()


def _note(notes: Any, text: str) -> None:
    notes.write(json.dumps(text) + "\n")
    notes.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Limits(float(sys.argv[3]), int(sys.argv[4])))
