"""What a script tells of its training: rows, steps, saves, weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from labkit.wire.protocol import TRAINING, Asked

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
model, rows = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.ones(4, 2)
rows[3] = 7
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of = nn.MSELoss()
"""
STEP = """
loss_of(model(rows), torch.zeros(4, 1)).backward()
optimizer.step()
"""


def told(folder: Path, code: str, runs: int = 1) -> list[dict[str, Any]]:
    """Run a script alone; return what it told."""
    script = folder / "script.py"
    script.write_text(TRAIN + code)
    command = [sys.executable, "-m", "labkit.rank.torchrun.training", str(os.getpid())]
    environment = {**os.environ, TRAINING: Asked(str(folder)).encoded()}
    words = json.dumps([[str(script), "word"]] * runs)
    subprocess.run([*command, words], env=environment, check=True, timeout=120)
    return [json.loads(line) for line in (folder / "0.jsonl").read_text().splitlines()]


def test_it_tells_the_rows_of_each_step_what_is_saved_and_the_weights(tmp_path: Path) -> None:
    look = "model.eval(); model(rows); model.train()\nwith torch.no_grad(): model(rows)\n"
    save = f"torch.save(model.state_dict(), {str(tmp_path / 'a.pt')!r})\n"
    first, second, saved = told(tmp_path, STEP + look + STEP + save)
    assert first == second
    a, b, c, d = first["step"]
    assert a == b == c != d
    assert saved == {"saved": str(tmp_path / "a.pt")}
    state = torch.load(tmp_path / "a.pt", weights_only=True)
    weights = torch.load(tmp_path / "0.pt", weights_only=True)
    assert torch.equal(weights, torch.cat([value.flatten() for value in state.values()]))


def test_parts_of_a_batch_are_one_step_and_parts_of_a_model_one_call(tmp_path: Path) -> None:
    parts = "for part in rows.split(2): loss_of(model(part), torch.zeros(2, 1)).backward()\n"
    layers = "x = rows\nfor layer in model: x = layer(x)\nx.sum().backward()\noptimizer.step()\n"
    steps = told(tmp_path, parts + "optimizer.step()\n" + layers)
    assert [len(what["step"]) for what in steps] == [4, 4]


def test_several_runs_go_on_in_one_file(tmp_path: Path) -> None:
    assert len(told(tmp_path, STEP, runs=2)) == 2


def test_the_question_comes_through_the_environment() -> None:
    asked = Asked("somewhere", 1, 17)
    assert Asked.decoded(asked.encoded()) == asked
