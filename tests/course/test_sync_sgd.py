"""Synchronous SGD as notebook 04 does it: many ranks compute what one process computes.

What runs on the ranks are the notebook's own cells, read from the file. The oracle is this
process, without a group: the same functions on the whole batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

import labkit
from tests.support.cells import run_cell

PATH = Path(__file__).resolve().parents[2] / "notebooks" / "04_sync_sgd.ipynb"
PX = "%%px\n"

#: What the cells that take part define, in their order; the first name that a cell binds.
CELLS = (
    "images",
    "partition",
    "make_model",
    "model",
    "backward",
    "average_gradients",
    "averaged",
    "train",
)
#: A part of an epoch is enough here.
STEPS = 8
#: More than the rounding of a few steps in double precision, far less than any mistake.
ROUNDING = 1e-12


def bound(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a cell binds."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [name.id for t in targets for name in ast.walk(t) if isinstance(name, ast.Name)]


@cache
def cells() -> dict[str, str]:
    """Return the sources of the cells that run on every rank, by each name that they bind."""
    found: dict[str, str] = {}
    for cell in nbformat.read(PATH, as_version=4).cells:
        if cell.cell_type == "code" and cell.source.startswith(PX):
            source = cell.source.removeprefix(PX)
            for name in (name for s in ast.parse(source).body for name in bound(s)):
                found.setdefault(name, source)
    return found


def functions() -> str:
    """Return the functions that those cells define, and what they import."""
    kept = (ast.FunctionDef, ast.Import, ast.ImportFrom)
    return "\n".join(
        ast.unparse(statement)
        for name in CELLS
        for statement in ast.parse(cells()[name]).body
        if isinstance(statement, kept)
    )


@pytest.fixture(scope="module", params=[2, 3, 4])
def lab(request: pytest.FixtureRequest) -> Iterator[labkit.Lab]:
    """Ranks on which the notebook's cells have run, up to the training of section 4."""
    with labkit.start(request.param, preload=["torchvision"]) as lab:
        for name in CELLS:
            run_cell(lab, cells()[name])
            if name == "partition":
                run_cell(lab, f"all_steps, steps = steps, {STEPS}")
        yield lab


@pytest.fixture
def one(lab: labkit.Lab) -> Iterator[dict[str, Any]]:
    """Give this process the same functions, all images, and the ranks' first weights."""
    images, labels = labkit.datasets.mnist_tensors(train=True, size="subset")
    names: dict[str, Any] = {
        "torch": torch,
        "device": torch.device("cpu"),
        "images": images.double(),
        "labels": labels,
        "steps": STEPS,
    }
    exec(functions(), names)
    model = names["make_model"]()
    torch.nn.utils.vector_to_parameters(lab["begin"][0].cpu(), model.parameters())
    whole = names["partition"](len(images), seed=0, part=0, parts=1)
    size = lab["batch"][0] * lab.world_size
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the ranks idle, but other programs may not
    yield names | {"model": model, "data": lambda: names["batches"](whole, size)}
    torch.set_num_threads(threads)


def test_every_image_is_dealt_exactly_once(lab: labkit.Lab) -> None:
    assert torch.cat(lab["mine"]).sort().values.equal(torch.arange(4000))


def test_the_batch_is_128_over_the_world_size(lab: labkit.Lab) -> None:
    n = lab.world_size
    assert lab["batch"] == [128 // n] * n
    assert lab["all_steps"] == [4000 // (128 // n * n)] * n


def test_the_ranks_differ_before_the_averaging_and_agree_with_one_process_after(
    lab: labkit.Lab, one: dict[str, Any]
) -> None:
    own, averaged = lab["own"], lab["averaged"]
    assert not any(own[i].equal(own[j]) for i in range(len(own)) for j in range(i))
    assert all(g.equal(averaged[0]) for g in averaged)
    one["backward"](one["model"], *next(one["data"]()))
    assert torch.allclose(one["gradient"](one["model"]), averaged[0].cpu(), rtol=0, atol=ROUNDING)
    assert not torch.allclose(own[0], averaged[0], atol=1e-3)


def test_training_agrees_with_one_process(lab: labkit.Lab, one: dict[str, Any]) -> None:
    parallel = lab["parallel"]
    assert all(w.equal(parallel[0]) for w in parallel)
    model = one["model"]
    one["train"](model, one["data"](), one["sgd"](model), one["nothing"])
    assert torch.allclose(one["weights"](model), parallel[0].cpu(), rtol=0, atol=ROUNDING)
    assert (parallel[0] - lab["begin"][0]).abs().max() > 0.01
