"""Measure one figure and print it as JSON: ``python -m tests.gpu.run.figures overlap 2``.

Each function measures on a lab of so many ranks, on GPUs by CUDA events, on the CPU by the clock.
``tests.gpu.record`` keeps what comes of them in ``data/measurements/``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import labkit
from tests.support.conda_versions import ROOT

#: Bytes of the tensors whose all_reduce is timed.
SIZES = tuple(4**k for k in range(5, 14))  # 1 KiB to 64 MiB
#: Repetitions of what is timed, after some that are not; the median counts.
ROUNDS, WARM_UP = 9, 3
TRAIN = ROOT / "notebooks" / "scripts" / "train.py"


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the median seconds of a call on this rank, by CUDA events where there is a GPU."""
    import statistics
    import time

    import torch

    def once() -> float:
        if not torch.cuda.is_available():
            began = time.perf_counter()
            call()
            return time.perf_counter() - began
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1000

    return statistics.median([once() for _ in range(WARM_UP + ROUNDS)][WARM_UP:])


def device() -> Any:
    """Return this rank's device."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def about(lab: labkit.Lab) -> dict[str, Any]:
    """Return where the ranks of a lab are."""
    states = lab.status()
    where = sorted({str(state.device) for state in states})
    return {"ranks": len(states), "backend": states[0].backend, "devices": where}


# -- the figures --------------------------------------------------------------------------------


def start(ranks: int) -> dict[str, Any]:
    """Measure the seconds to a lab, and to the first all_reduce on it."""

    def first() -> float:
        import torch
        import torch.distributed as dist

        x = torch.ones(1, device=device())
        dist.all_reduce(x)
        return float(x.item())

    began = time.monotonic()
    with labkit.start(ranks) as lab:
        started = time.monotonic() - began
        sums = lab.run(first)
        reduced = time.monotonic() - began
        assert sums == [ranks] * ranks, sums
        facts = about(lab)
    return {**facts, "start_seconds": round(started, 2), "all_reduce_seconds": round(reduced, 2)}


def bandwidth(ranks: int) -> dict[str, Any]:
    """Measure the bus bandwidth of all_reduce by size, in GB/s as nccl-tests define it.

    Its factor 2 (n − 1)/n is 0 on one rank: there the bytes per second stand, without a factor.
    """

    def measure() -> list[float]:
        import torch
        import torch.distributed as dist

        tensors = [torch.ones(size // 4, device=device()) for size in SIZES]
        return [seconds_of(lambda x=x: dist.all_reduce(x)) for x in tensors]

    with labkit.start(ranks) as lab:
        slowest = [max(times) for times in zip(*lab.run(measure), strict=True)]
        facts = about(lab)
    factor = 2 * (ranks - 1) / ranks if ranks > 1 else 1.0
    rows = [
        {"bytes": size, "seconds": round(t, 7), "gb_per_second": round(factor * size / t / 1e9, 3)}
        for size, t in zip(SIZES, slowest, strict=True)
    ]
    return {**facts, "factor": factor, "rows": rows}


def overlap(ranks: int) -> dict[str, Any]:
    """Measure how much of DDP's communication its backward hides.

    Seconds of a step with DDP, of one without communication, and of the same bytes reduced alone.
    """

    def measure() -> tuple[float, float, float]:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        where, on_gpu = device(), torch.cuda.is_available()
        width, rows = (4096, 4096) if on_gpu else (256, 64)
        net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).to(where)
        ddp = DistributedDataParallel(net, device_ids=[where.index] if on_gpu else None)
        x = torch.randn(rows, width, device=where)
        flat = torch.ones(sum(p.numel() for p in net.parameters()), device=where)

        def step() -> None:
            ddp(x).square().mean().backward()

        def alone() -> None:
            with ddp.no_sync():
                step()

        return seconds_of(step), seconds_of(alone), seconds_of(lambda: dist.all_reduce(flat))

    with labkit.start(ranks) as lab:
        step, compute, reduce = (max(times) for times in zip(*lab.run(measure), strict=True))
        facts = about(lab)
    # One rank has nothing to send: what its all_reduce takes is not communication.
    hidden = round((compute + reduce - step) / reduce, 3) if ranks > 1 else None
    times = {"step": step, "without_communication": compute, "all_reduce_alone": reduce}
    return {**facts, **{f"{name}_seconds": round(t, 6) for name, t in times.items()},
            "hidden": hidden}  # fmt: skip


def precision(ranks: int) -> dict[str, Any]:
    """Measure a training step in fp32, TF32, bf16 and fp16: seconds, and bytes above the model."""

    def measure() -> list[dict[str, Any]]:
        import torch
        import torch.nn.functional as F

        where, on_gpu = device(), torch.cuda.is_available()
        width, rows, depth = (2048, 8192, 12) if on_gpu else (128, 64, 4)
        layers = [m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        net = torch.nn.Sequential(*layers).to(where)
        x = torch.randn(rows, width, device=where)
        found = []
        for name, dtype in (("fp32", None), ("tf32", None), ("bf16", torch.bfloat16),
                            ("fp16", torch.float16)):  # fmt: skip
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"

            def step(dtype: Any = dtype) -> None:
                net.zero_grad()
                with torch.autocast(where.type, dtype=dtype, enabled=dtype is not None):
                    loss = F.mse_loss(net(x), x)
                loss.backward()

            step()
            before = 0
            if on_gpu:
                torch.cuda.synchronize()
                net.zero_grad()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            seconds = seconds_of(step)
            peak = torch.cuda.max_memory_allocated() - before if on_gpu else None
            found.append({"precision": name, "seconds": round(seconds, 6), "bytes": peak})
        return found

    with labkit.start(ranks) as lab:
        (rows, *_) = lab.run(measure)
        return {**about(lab), "rows": rows}


def train(ranks: int) -> dict[str, Any]:
    """Measure the images per second of the course's ``train.py`` under torchrun, by log line."""
    from tempfile import TemporaryDirectory

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    rows = []
    with TemporaryDirectory() as folder:
        for name in ("float32", "bfloat16"):
            options = [f"--nproc-per-node={ranks}", str(TRAIN), "--epochs=3", "--batch-size=256",
                       f"--precision={name}"]  # fmt: skip
            done = subprocess.run(
                [*torchrun, *options], cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
            speeds = re.findall(r"([\d,]+) examples/s", done.stdout)
            numbers = [int(speed.replace(",", "")) for speed in speeds]
            rows.append({"precision": name, "images_per_second": numbers})
    return {"ranks": ranks, "rows": rows}


FIGURES = {f.__name__: f for f in (start, bandwidth, overlap, precision, train)}


def main(name: str, ranks: int) -> None:
    """Print a figure as the last line."""
    facts = FIGURES[name](ranks)
    print("\n" + json.dumps({"figure": name, **facts}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
