"""A training killed at random moments, with the save function of notebook 11: it costs no
checkpoint. (The notebook kills a writer after each part of a file.)"""

from __future__ import annotations

import ast
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from labkit.course import material

ROOT = Path(material.root())
NOTEBOOK = ROOT / "notebooks" / "11_checkpointing.ipynb"

# Python 3.12 warns of a fork beside torch's threads; the children compute nothing with them.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

#: Numbers in the weight: so few that torch computes with one thread, which a child can do.
COUNT = 20_000
SEED = 10


def function(name: str) -> Callable[..., None]:
    """Return a function that a cell of the notebook defines."""
    names: dict[str, Any] = {"os": os, "torch": torch}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code" and f"def {name}(" in cell.source:
            body = ast.parse(cell.source).body
            only: list[ast.stmt] = [
                part for part in body if isinstance(part, ast.FunctionDef) and part.name == name
            ]
            exec(compile(ast.Module(only, []), name, "exec"), names)
    found: Callable[..., None] = names[name]
    return found


def state(step: int) -> dict[str, Any]:
    return {"step": step, "weight": torch.full((COUNT,), float(step))}


def step_in(path: Path) -> int:
    """Return the step of a checkpoint; fail if it is not whole."""
    found = torch.load(path, weights_only=True)
    assert found["weight"].shape == (COUNT,)
    assert bool((found["weight"] == found["step"]).all())
    return int(found["step"])


def train(save: Callable[..., None], path: Path, done: Connection) -> None:
    """Take steps from where the file is, save after each, and tell when it is safe."""
    found = torch.load(path, weights_only=True)
    while True:
        found["step"] += 1
        found["weight"] += 1
        save(found, path)
        done.send(found["step"])


def test_25_random_moments_of_a_training(tmp_path: Path) -> None:
    save, path, dice = function("save_atomically"), tmp_path / "model.pt", random.Random(SEED)
    save(state(0), path)
    last = 0
    for _ in range(25):
        inbox, outbox = get_context("fork").Pipe(duplex=False)
        child = get_context("fork").Process(target=train, args=(save, path, outbox))
        child.start()
        outbox.close()
        assert inbox.poll(20)  # it has saved once at least
        time.sleep(dice.uniform(0, 0.03))
        child.kill()
        child.join(20)
        assert child.exitcode == -signal.SIGKILL
        told = last
        try:
            while inbox.poll(0):
                told = inbox.recv()
        except EOFError:
            pass
        inbox.close()
        # what was reported as saved is there; at most the next one, not yet reported, is too
        found = step_in(path)
        assert last < told <= found <= told + 1
        last = found
