"""The learner's own DDP of scripts/miniddp.py, in a group of one rank: it loses no gradient."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist

SCRIPT = Path(__file__).resolve().parents[2] / "notebooks" / "scripts" / "miniddp.py"


@pytest.fixture
def miniddp() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("miniddp", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield module
    dist.destroy_process_group()


def test_a_step_keeps_the_gradients_of_one_process(miniddp: ModuleType) -> None:
    net = torch.nn.Linear(2, 1, bias=False)
    model = miniddp.DDP(net)
    for _ in range(2):
        net.zero_grad()
        model(torch.tensor([3.0, 5.0])).backward()
        model.finish()
        assert net.weight.grad is not None
        assert net.weight.grad.tolist() == [[3.0, 5.0]]


def test_a_second_backward_without_finish_is_refused(miniddp: ModuleType) -> None:
    model = miniddp.DDP(torch.nn.Linear(1, 1))
    model(torch.ones(1)).backward()
    with pytest.raises(RuntimeError, match=r"backward\(\) ran twice without finish\(\)"):
        model(torch.ones(1)).backward()


def test_a_parameter_without_a_gradient_is_named(miniddp: ModuleType) -> None:
    model = miniddp.DDP(
        torch.nn.ModuleDict({"used": torch.nn.Linear(1, 1), "not": torch.nn.Linear(1, 1)})
    )
    model.module["used"](torch.ones(1)).backward()
    with pytest.raises(RuntimeError, match="a parameter has no gradient"):
        model.finish()
