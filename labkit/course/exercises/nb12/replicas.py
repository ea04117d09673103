"""Run a model as DataParallel does, on any device: what a check passes as ``wrap``."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.func import functional_call


def data_parallel(model: nn.Module, devices: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function of a batch: the model's forward pass on so many devices.

    Replica 0 has the model's own parameters and buffers, the others have copies, which are thrown
    away.
    """

    def forward(batch: torch.Tensor) -> torch.Tensor:
        state: dict[str, Any] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        outputs = []
        for i, piece in enumerate(batch.chunk(devices)):
            own = {n: tensor if i == 0 else tensor.clone() for n, tensor in state.items()}
            outputs.append(functional_call(deepcopy(model), own, piece))
        return torch.cat(outputs)

    return forward
