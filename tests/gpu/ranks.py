"""Labs for tests on GPUs, and for trying these tests without one.

``make test-gpu GPU=0`` sets ``LABKIT_GPU_TESTS=fake``: ranks then compute on the CPU, by a gloo
that behaves as NCCL (``tests.support.fake_nccl``). Tests that need CUDA itself are skipped.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import labkit
from labkit.launch.placement import NCCL_SHARES_GPU
from labkit.rank.gpus import nccl_version
from tests.gpu import crash_stacks
from tests.support import cells
from tests.support.cells import run_cell
from tests.support.on_fake_nccl import start_on_fake_nccl

FAKE = os.environ.get("LABKIT_GPU_TESTS") == "fake"
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
needs_gpu = pytest.mark.skipif(not GPUS, reason="this machine has no GPU")


def nccl_serves(ranks: int) -> bool:
    """Return whether NCCL serves so many ranks on the GPUs of this machine."""
    return ranks <= GPUS or (GPUS > 0 and (nccl_version() or ())[:2] >= NCCL_SHARES_GPU)


def needs_nccl_for(ranks: int) -> pytest.MarkDecorator:
    """Skip a test where neither NCCL nor the fake one serves so many ranks."""
    return pytest.mark.skipif(
        not (FAKE or nccl_serves(ranks)), reason=f"this machine has no GPU for {ranks} NCCL ranks"
    )


def start(ranks: int, **options: Any) -> labkit.Lab:
    """Start ranks on NCCL, or on the fake one where this is only tried."""
    preload = [crash_stacks.__name__, *options.pop("preload", ())]
    if FAKE:
        return start_on_fake_nccl(ranks, preload=preload, **options)
    return labkit.start(ranks, preload=preload, **options)


def restored(lab: labkit.Lab) -> labkit.Lab:
    """Replace the ranks of a lab that an earlier test left dead or busy, and empty its cache."""
    cells.restored(lab)
    if GPUS:
        run_cell(lab, "torch.cuda.empty_cache()")
    return lab
