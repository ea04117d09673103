"""Try NCCL itself, without labkit: ``python -m tests.gpu.run.probe 4`` starts plain processes.

Where ranks share a GPU, this says whether NCCL can do that on this machine at all: what fails
here is not labkit's to mend.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from labkit.launch.placement import SHARING

#: Elements of the large all_reduce: 64 MiB of float32.
LARGE = 1 << 24
#: Seconds that one call may take.
LIMIT = 15.0


def work(rank: int, ranks: int, folder: str) -> None:
    """Join a group, take each kind of call once, write what came of it."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    found: dict[str, Any] = {}

    def measured(name: str, call: Any) -> None:
        began = time.monotonic()
        found[name] = call()
        if gpus:
            torch.cuda.synchronize()
        found[f"{name}_seconds"] = round(time.monotonic() - began, 3)
        with open(f"{folder}/{rank}.json", "w") as file:
            json.dump(found, file)

    def add(size: int, group: Any = None) -> float:
        x = torch.full((size,), rank + 1.0, device=device)
        dist.all_reduce(x, group=group)
        return float(x[-1].item())

    def exchange() -> float:
        x, y = (torch.full((3,), float(value), device=device) for value in (rank, -1))
        ends = [dist.P2POp(dist.isend, x, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, y, (rank - 1) % ranks)]  # fmt: skip
        for handle in dist.batch_isend_irecv(ends):
            handle.wait()
        return float(y[0].item())

    store = dist.FileStore(f"{folder}/store", ranks)
    backend = "nccl" if gpus else "gloo"
    limit = timedelta(seconds=LIMIT)
    # As labkit does it: with the device, so that NCCL connects at once.
    bound = {"device_id": device} if gpus else {}
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=ranks, timeout=limit, **bound
    )
    measured("first", lambda: add(1))
    measured("all_reduce", lambda: add(1))
    measured("large", lambda: add(LARGE))
    measured("exchange", exchange)
    half = dist.new_group([0, 1])
    measured("in a group", lambda: add(1, half) if rank < 2 else 3.0)
    dist.barrier()
    # Ends without tidying up: that is for labkit's own tests.
    os._exit(0)


def main(ranks: int) -> None:
    """Print what each rank found, as JSON; end with 1 if one failed."""
    if 0 < torch.cuda.device_count() < ranks:
        os.environ |= SHARING
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    total = ranks * (ranks + 1) / 2
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        children = [context.Process(target=work, args=(r, ranks, folder)) for r in range(ranks)]
        for child in children:
            child.start()
        end = time.monotonic() + 2 * LIMIT
        for child in children:
            child.join(max(0.0, end - time.monotonic()))
        codes = [child.exitcode for child in children]
        for child in children:
            if child.exitcode is None:
                child.kill()
                child.join()
        found: list[dict[str, Any]] = [{} for _ in range(ranks)]
        for rank in range(ranks):
            with contextlib.suppress(FileNotFoundError), open(f"{folder}/{rank}.json") as file:
                found[rank] = json.load(file)
    same = {"first": total, "all_reduce": total, "large": total, "in a group": 3.0}
    expected = [{**same, "exchange": float((r - 1) % ranks)} for r in range(ranks)]
    wrong = [
        f"rank {r}: {name} gave {found[r].get(name, 'nothing')}, not {value}"
        for r in range(ranks)
        for name, value in expected[r].items()
        if found[r].get(name) != value
    ]
    facts = {"ranks": ranks, "codes": codes, **found[0]}
    if wrong:
        facts["error"] = f"{wrong[0]}; exit codes {codes}"
    print("\n" + json.dumps(facts))


if __name__ == "__main__":
    main(int(sys.argv[1]))
