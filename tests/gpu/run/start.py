"""Start a lab and take a first all_reduce; say how long it took: ``… -m tests.gpu.run.start 4``."""

from __future__ import annotations

import json
import sys
import time


def first() -> float:
    """Add up a one of each rank, on its device."""
    import torch
    import torch.distributed as dist

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.ones(1, device=device)
    dist.all_reduce(x)
    return float(x.item())


def main(ranks: int) -> None:
    """Print the seconds to a lab and to its first all_reduce, with where its ranks are."""
    began = time.monotonic()
    import labkit

    with labkit.start(ranks) as lab:
        started = time.monotonic() - began
        sums = lab.run(first)
        reduced = time.monotonic() - began
        assert sums == [ranks] * ranks, sums
        states = lab.status()
    facts = {
        "ranks": ranks,
        "start_seconds": round(started, 2),
        "all_reduce_seconds": round(reduced, 2),
        "backend": states[0].backend,
        "devices": sorted({str(state.device) for state in states}),
    }
    print("\n" + json.dumps(facts))


if __name__ == "__main__":
    main(int(sys.argv[1]))
