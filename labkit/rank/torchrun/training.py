"""Tell what a script trains on: the rows of each step, what it saves, and its weights at the end.

It listens where torch lets everybody listen, by hooks of all modules and all optimizers. The script
is what it is: it needs no line for this, and nothing that it computes changes.

Also runs as ``python -m labkit.rank.torchrun.training PARENT RUNS``, one process alone that tells
the same: RUNS is JSON, a list of command lines (the script and its arguments) that it runs in turn.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from ...base import times
from ...wire.processes import end_with_parent
from ...wire.protocol import TRAINING, Asked

#: torchrun's variable: how often it has started the processes again. Those do not wait.
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


class Teller:
    """Writes down what this process trains on.

    Parameters
    ----------
    asked
        What is asked.
    rank
        The number of this process.
    """

    def __init__(self, asked: Asked, rank: int) -> None:
        self._asked = asked
        self._rank = rank
        self._place = Path(asked.folder) / str(rank)
        self._depth = 0  #: of the modules that are being called
        self._rows: list[int] = []  #: that no step has been made with
        self._steps = 0
        self._model: Any = None  #: called last

    def listen(self) -> None:
        """Begin; torch has been imported."""
        import torch
        from torch.nn.modules.module import (
            register_module_forward_hook,
            register_module_forward_pre_hook,
        )
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        register_module_forward_pre_hook(self._called)
        register_module_forward_hook(self._returned, always_call=True)
        register_optimizer_step_pre_hook(self._may_wait)
        register_optimizer_step_post_hook(self._stepped)
        original = torch.save

        @functools.wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            original(obj, f, *args, **kwargs)
            path = f if isinstance(f, str | os.PathLike) else getattr(f, "name", "")
            self._write(saved=os.path.abspath(path) if path else "")

        torch.save = save

    def _called(self, module: Any, inputs: tuple[Any, ...]) -> None:
        self._depth += 1
        if self._depth == 1:
            with contextlib.suppress(Exception):
                self._note(module, inputs[0])

    def _returned(self, *_: Any) -> None:
        self._depth -= 1

    def _note(self, module: Any, rows: Any) -> None:
        """Record the rows that a model is called with, if it is to learn from them.

        A loss has no parameters, and what comes from a part of the model needs a gradient.
        """
        import torch

        if not (torch.is_grad_enabled() and module.training) or rows.requires_grad:
            return
        if next(module.parameters(), None) is None:
            return
        self._model = module
        data = rows.detach().cpu().contiguous().view(len(rows), -1).view(torch.uint8).numpy()
        self._rows += [_number(row.tobytes()) for row in data]

    def _may_wait(self, *_: Any) -> None:
        held = (self._asked.hold_rank, self._asked.hold_step)
        if (self._rank, self._steps + 1) == held and os.environ.get(RESTARTS, "0") == "0":
            self._write(held=self._steps + 1)
            deadline = time.monotonic() + times.HELD
            while time.monotonic() < deadline:
                time.sleep(times.HELD_LOOK)

    def _stepped(self, *_: Any) -> None:
        self._steps += 1
        self._write(step=self._rows)
        self._rows = []

    def _write(self, **what: Any) -> None:
        with contextlib.suppress(OSError), open(f"{self._place}.jsonl", "a") as file:
            file.write(json.dumps(what) + "\n")

    def end(self) -> None:
        """Write the weights, if there are any."""
        if self._model is None:
            return
        import torch

        with contextlib.suppress(Exception), torch.no_grad():
            vector = torch.nn.utils.parameters_to_vector(self._model.parameters()).cpu()
            torch.serialization.save(vector, f"{self._place}.pt")


def _number(row: bytes) -> int:
    """Return a number that only equal rows share."""
    return int.from_bytes(hashlib.blake2b(row, digest_size=6).digest(), "big")


def teller() -> Teller | None:
    """Return what tells of this process, None if nobody asks."""
    asked = os.environ.pop(TRAINING, "")
    return Teller(Asked.decoded(asked), int(os.environ.get("RANK", "0"))) if asked else None


def main(argv: list[str]) -> None:
    parent, runs = argv
    end_with_parent(int(parent))
    telling = teller()
    if telling is not None:
        telling.listen()
    for words in json.loads(runs):
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    if telling is not None:
        telling.end()


if __name__ == "__main__":
    main(sys.argv[1:])
