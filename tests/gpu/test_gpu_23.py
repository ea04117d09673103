"""What notebook 23 shows only where there is a GPU. Run by hand there: pytest -m gpu."""

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def sums_by_two_backends():
    """Add up on the CPU and on the GPU in one group; return both sums and the group's backends."""
    import torch
    import torch.distributed as dist

    both = dist.new_group(backend="cpu:gloo,cuda:nccl")
    sums = []
    for device in ("cpu", torch.device("cuda", torch.cuda.current_device())):
        x = torch.tensor([dist.get_rank() + 1.0], device=device)
        dist.all_reduce(x, group=both)
        sums.append(x.item())
    backends = [both._get_backend(torch.device(kind)).name() for kind in ("cpu", "cuda")]
    return sums, backends


def test_one_group_has_gloo_for_the_cpu_and_nccl_for_the_gpu(lab1):
    ((sums, backends),) = lab1.run(sums_by_two_backends)
    assert sums == [1.0, 1.0]
    assert backends == ["gloo", "nccl"]
