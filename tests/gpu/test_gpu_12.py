"""What notebook 12 says of nn.DataParallel, on real GPUs: pytest -m gpu.

The notebook's own functions are taken from its cells and compared with the real ones.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from torch import nn

from labkit.course import edition

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "12_data_parallel.ipynb"
HOME = "cuda:0"
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS < 1, reason="this machine has no GPU"),
    # The first product of a new thread: torch then takes the GPU's context by itself.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]
two = pytest.mark.skipif(GPUS < 2, reason="nn.DataParallel splits a batch on two or more GPUs")


@pytest.fixture(scope="module")
def course() -> dict[str, Any]:
    """Return what the notebook's cells import and define, for two devices: GPUs, or one that
    plays both."""
    names: dict[str, Any] = {"traffic": Counter()}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type != "code" or cell.source.startswith("%%"):
            continue
        source = edition.solved(cell.source) if edition.has_solution(cell.source) else cell.source
        tree = ast.parse(source)
        kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
        tree.body = [node for node in tree.body if isinstance(node, kept)]
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
    names["devices"] = names["use"](2)
    return names


def make_toy() -> tuple[nn.Module, list[int]]:
    """Return the notebook's toy on device 0, and where its hook writes the rows of each call."""
    inside: list[int] = []
    toy = nn.Linear(5, 2).to(HOME)
    toy.register_forward_hook(lambda module, inputs, output: inside.append(len(inputs[0])))
    return toy, inside


def batches() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return list(torch.randn(100, 5).split(30))


def gradient(model: nn.Module, forward: Any, batch: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    forward(batch).pow(2).mean().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_the_notebooks_steps_give_the_gradient_of_one_device(course):
    toy, inside = make_toy()
    for batch in batches():
        whole = gradient(toy, toy, batch.to(HOME))
        inside.clear()
        split = gradient(toy, lambda rows: course["data_parallel"](toy, rows), batch)
        assert inside == [len(batch) // 2] * 2
        torch.testing.assert_close(split, whole)


@pytest.mark.parametrize(("name", "kept"), [("Counting", 0), ("InPlace", 50)])
def test_the_notebooks_steps_keep_what_device_0_writes_in_place(course, name, kept):
    model = course[name]().to(HOME)
    for batch in batches():
        course["data_parallel"](model, batch)
    assert model.rows.item() == kept


def test_threads_do_not_know_of_no_grad_until_they_are_told(course):
    toy, _ = make_toy()
    with torch.no_grad():
        replicas, pieces = course["replicate"](toy, 2), course["scatter"](batches()[0])
        before = course["parallel_apply"](replicas, pieces)
        after = course["apply_on_threads"](replicas, pieces)
    assert [output.requires_grad for output in before] == [True, False]
    assert [output.requires_grad for output in after] == [False, False]


def test_threads_do_not_know_of_autocast_until_they_are_told(course):
    toy, _ = make_toy()
    replicas, pieces = course["replicate"](toy, 2), course["scatter"](batches()[0])
    with torch.autocast("cuda", dtype=torch.bfloat16):  # the default is float16
        before = course["parallel_apply"](replicas, pieces)
        after = course["apply_on_threads"](replicas, pieces)
    assert {output.dtype for output in before} == {torch.float32}
    assert {output.dtype for output in after} == {torch.bfloat16}


def test_the_buffers_that_dp_loses_are_found(course):
    x = torch.ones(30, 5, device=HOME)
    lost = {
        name: course["lost_buffers"](course[name]().to(HOME), x, course["wrap"])
        for name in ("Counting", "InPlace")
    }
    assert lost == {"Counting": ["rows"], "InPlace": ["rows"]}


def test_with_one_gpu_the_wrapper_moves_the_module_and_calls_it_once():
    toy, inside = make_toy()
    output = nn.DataParallel(toy.cpu(), device_ids=[0])(batches()[0])
    assert output.device == torch.device(HOME)
    assert inside == [30]


@two
@pytest.mark.parametrize("gpus", [2, 8])
def test_the_split_of_the_toy(gpus):
    if gpus > GPUS:
        pytest.skip(f"this machine has {GPUS} GPUs")
    toy, inside = make_toy()
    dp = nn.DataParallel(toy, device_ids=list(range(gpus)))
    for batch in batches():
        inside.clear()
        dp(batch)
        assert sorted(inside, reverse=True) == [len(piece) for piece in batch.chunk(gpus)]


@two
def test_the_real_one_gives_the_same_gradient(course):
    toy, _ = make_toy()
    dp = course["wrap"](toy)
    assert isinstance(dp, nn.DataParallel)
    for batch in batches():
        split = gradient(toy, lambda rows: course["data_parallel"](toy, rows), batch)
        torch.testing.assert_close(gradient(toy, dp, batch), split)


@two
@pytest.mark.parametrize(("name", "kept"), [("Counting", 0), ("InPlace", 50)])
def test_the_real_one_keeps_what_device_0_writes_in_place(course, name, kept):
    model = course[name]().to(HOME)
    dp = nn.DataParallel(model, device_ids=[0, 1])
    for batch in batches():
        dp(batch)
    assert model.rows.item() == kept


@two
def test_hooks_run_once_on_each_device():
    toy, _ = make_toy()
    calls = []
    toy.register_forward_hook(lambda module, inputs, output: calls.append(output.device.index))
    nn.DataParallel(toy, device_ids=[0, 1])(batches()[0])
    assert sorted(calls) == [0, 1]


@two
def test_a_module_elsewhere_is_refused():
    dp = nn.DataParallel(nn.Linear(5, 2))
    with pytest.raises(RuntimeError, match=r"on device cuda:0 \(device_ids\[0\]\)"):
        dp(batches()[0])


@two
def test_the_real_one_tells_its_threads_of_no_grad():
    toy, _ = make_toy()
    graphs = []
    toy.register_forward_hook(lambda *_: graphs.append(torch.is_grad_enabled()))
    with torch.no_grad():
        nn.DataParallel(toy, device_ids=[0, 1])(batches()[0])
    assert graphs == [False, False]


@two
def test_the_real_one_tells_its_threads_of_autocast_but_not_of_its_type():
    toy, _ = make_toy()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = nn.DataParallel(toy, device_ids=[0, 1])(batches()[0])
    assert output.dtype == torch.float16
