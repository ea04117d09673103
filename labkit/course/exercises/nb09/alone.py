"""Let ``single.py`` train on one process: what a script for several is compared with."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ....base import times
from ....base.errors import DataError
from ....wire.protocol import TRAINING, Asked
from ....wire.state import describe_exit
from ... import material
from ...script_start import Trained, environment

SINGLE = "scripts/single.py"
EPOCHS, BATCH, RATE = 2, 64, 0.05
STEPS = 4000 // BATCH  #: of an epoch of the images that come with the course
ROWS = STEPS * BATCH


class Alone:
    """What one process of ``single.py`` trains: begun at once, waited for when it is asked for.

    Parameters
    ----------
    first
        A checkpoint to go on from instead of training anew.
    """

    def __init__(self, first: Path | None = None) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="labkit-")
        self._folder = Path(self._kept.name)
        self._last = self._folder / "last.pt"
        runs = [[f"--epochs={EPOCHS}", f"--save={self._last}"]]
        if first is None:
            runs.insert(0, ["--epochs=1", f"--save={self._folder / 'first.pt'}"])
        else:
            shutil.copy(first, self._last)
        command = [sys.executable, "-P", "-m", "labkit.rank.torchrun.training", str(os.getpid())]
        self._process = subprocess.Popen(
            [*command, json.dumps([[str(material.file(SINGLE)), *words] for words in runs])],
            cwd=self._kept.name,  # the notebook's folder may go away before it has begun
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **environment(), TRAINING: Asked(self._kept.name).encoded()},
        )

    def wait(self) -> Path:
        """Wait until it has trained; return its folder.

        Raises
        ------
        DataError
            If it has failed.
        """
        try:
            code = self._process.wait(times.TRAINED_ALONE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code:
            raise DataError(f"{SINGLE} of the course does not run here: {describe_exit(code)}.")
        return self._folder

    @property
    def first(self) -> Path:
        """Its checkpoint after one epoch."""
        return self.wait() / "first.pt"

    @cached_property
    def steps(self) -> list[list[int]]:
        """The rows of each step of all epochs."""
        return Trained.read(self.wait(), 0).steps[STEPS:]

    @cached_property
    def weights(self) -> Mapping[str, Any]:
        """Its weights after all epochs, by name."""
        self.wait()
        import torch

        return torch.load(self._last, map_location="cpu", weights_only=True)["model"]

    def close(self) -> None:
        """Remove its folder; what has been read of it stays."""
        self._process.kill()
        self._process.wait()
        self._kept.cleanup()


@cache
def alone() -> Alone:
    """Return what one process trains; begun once in a notebook."""
    begun = Alone()
    atexit.register(begun.close)
    return begun


@cache
def without_state() -> Mapping[str, Any]:
    """Return the weights of one process that forgot, after one epoch, the optimizer's state."""
    import torch

    state = torch.load(alone().first, weights_only=True)
    state["optimizer"]["state"] = {}
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        torch.save(state, first := Path(folder) / "first.pt")
        forgetful = Alone(first)
    try:
        return forgetful.weights
    finally:
        forgetful.close()
