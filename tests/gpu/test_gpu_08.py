"""Mixed precision on GPUs, what notebook 08 says of them. Run by hand: pytest -m gpu."""

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def types():
    """Return the type that each operation gives under fp16 autocast, given fp32 and fp16."""
    import torch
    import torch.nn.functional as F

    device = torch.device("cuda", torch.cuda.current_device())
    a = torch.randn(8, 8, device=device)
    calls = {
        "a @ a": lambda a: a @ a,
        "conv2d": lambda a: F.conv2d(a[None, None], a[None, None, :3, :3]),
        "relu": F.relu,
        "softmax": lambda a: a.softmax(dim=1),
        "sum": lambda a: a.sum(),
        "mse_loss": lambda a: F.mse_loss(a, a),
        "cross_entropy": lambda a: F.cross_entropy(a, a.argmax(dim=1)),
    }
    with torch.autocast("cuda", dtype=torch.float16):
        return {name: (call(a).dtype, call(a.half()).dtype) for name, call in calls.items()}


def half_step(bad_rank):
    """Take one DDP step in fp16, with an overflow on one rank (None: on none); return whether the
    weights moved, whether they are finite, the scale, and the types of parameters and gradients."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(64, 8).to(device), device_ids=[device.index])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    x = torch.ones(16, 64, device=device) * (dist.get_rank() + 1)
    if dist.get_rank() == bad_rank:
        x[0, 0] = 1e6
    before = torch.nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(net(x), torch.zeros(16, 8, device=device))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    now = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    kinds = {p.dtype for p in net.parameters()} | {p.grad.dtype for p in net.parameters()}
    return not now.equal(before), bool(now.isfinite().all()), scaler.get_scale(), kinds


def peak_and_seconds(dtype):
    """Return the most memory that a step of a deep network takes above its parameters, and the
    least seconds of five steps."""
    import time

    import torch
    import torch.nn.functional as F

    device = torch.device("cuda", torch.cuda.current_device())
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(8192, 2048, device=device)
    # TF32 would make fp32 nearly as fast, which is another lesson
    torch.backends.cuda.matmul.allow_tf32 = False
    times = []
    for step in range(6):
        net.zero_grad()
        torch.cuda.synchronize()
        if step == 1:  # the first one chooses kernels and makes the gradients
            torch.cuda.reset_peak_memory_stats()
            start = torch.cuda.memory_allocated()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            loss = F.mse_loss(net(x), x)
        loss.backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return torch.cuda.max_memory_allocated() - start, min(times[1:])


@pytest.fixture
def lab(request, ranks):
    """Return one rank, or two."""
    return request.getfixturevalue(f"lab{ranks}")


def test_autocast_chooses_the_types_that_the_text_names(lab1):
    low, full = torch.float16, torch.float32
    (found,) = lab1.run(types)
    assert found["a @ a"] == found["conv2d"] == (low, low)
    assert found["relu"] == (full, low)
    for name in ("softmax", "sum", "mse_loss", "cross_entropy"):
        assert found[name] == (full, full), name


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_half_precision_step_moves_finite_weights(lab):
    for moved, finite, scale, kinds in lab.run(half_step, None):
        assert (moved, finite, scale, kinds) == (True, True, 2.0**10, {torch.float32})


def test_an_overflow_on_one_rank_makes_all_of_them_skip(lab2):
    for moved, finite, scale, _ in lab2.run(half_step, 1):
        assert (moved, finite, scale) == (False, True, 2.0**9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_take_less_memory_and_less_time(lab1, dtype):
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bf16")
    ((memory, seconds),) = lab1.run(peak_and_seconds, torch.float32)
    ((less, faster),) = lab1.run(peak_and_seconds, dtype)
    assert less < 0.85 * memory
    assert faster < 0.7 * seconds
