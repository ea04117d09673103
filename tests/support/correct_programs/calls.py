"""Programs with every kind of call: works kept and waited for later, messages in batches, objects,
collectives that compute, DDP and FSDP.
"""

from __future__ import annotations

from .program import everyone, program

HANDLES = [
    program(
        "two hundred works of two groups, waited for in another cell, one rank late",
        lambda n: [200.0 * n] * n,
        """
        import time
        groups = [dist.new_group(list(range(world_size))) for _ in range(2)]
        xs = [torch.ones(1) for _ in range(200)]
        def issue():
            return [dist.all_reduce(x, group=groups[i % 2], async_op=True)
                    for i, x in enumerate(xs)]
        works = issue() if rank != 1 else None
        """,
        """
        if rank == 1:
            time.sleep(2)
            works = issue()
        for work in works:
            work.wait()
        sum(x.item() for x in xs)
        """,
    ),
    program(
        "an irecv of one cell is waited for in a third, the isend comes late in the second",
        lambda n: [6.0, *[0.0] * (n - 1)],
        """
        import time
        x = torch.zeros(1)
        work = dist.irecv(x, 1) if rank == 0 else None
        """,
        """
        import threading
        y = torch.tensor([6.0])
        if rank == 1:
            timer = threading.Timer(2, dist.send, (y, 0))
            timer.start()
        """,
        """
        if work is not None:
            work.wait()
        x.item()
        """,
    ),
    program(
        "a batch of messages round a ring with one late rank",
        lambda n: [float((r - 1) % n) for r in range(n)],
        """
        import time
        x, y = torch.tensor([float(rank)]), torch.zeros(1)
        if rank == 0:
            time.sleep(2)
        right, left = (rank + 1) % world_size, (rank - 1) % world_size
        operations = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        y.item()
        """,
    ),
    program(
        "handles of messages are dropped when they have arrived",
        lambda n: [0.0, 15.0, *[0.0] * (n - 2)],
        """
        import gc, time
        sums = torch.zeros(1)
        for step in range(6):
            if rank == 0:
                work = dist.isend(torch.tensor([float(step)]), 1)
                work.wait()
                del work
                gc.collect()
            if rank == 1:
                time.sleep(1.5 if step == 2 else 0)
                y = torch.zeros(1)
                dist.recv(y, 0)
                sums += y
        dist.barrier()
        sums.item()
        """,
    ),
    program(
        "a tag for each of many messages, received in the other order",
        lambda n: [list(range(10)), *[None] * (n - 1)],
        """
        import time
        value = None
        if rank == 1:
            ys = [torch.tensor([tag]) for tag in range(10)]
            works = [dist.isend(y, 0, tag=tag) for tag, y in enumerate(ys)]
            for work in works:
                work.wait()
        if rank == 0:
            xs = [torch.zeros(1, dtype=torch.int64) for _ in range(10)]
            for tag in reversed(range(10)):
                time.sleep(0.25)
                dist.recv(xs[tag], 1, tag=tag)
            value = [x.item() for x in xs]
        value
        """,
    ),
]

COLLECTIVES = [
    program(
        "monitored barriers, the first held up by rank 0, the second by the last",
        everyone("passed"),
        """
        import time
        time.sleep(1.5 if rank == 0 else 0)
        dist.monitored_barrier()
        time.sleep(1.5 if rank == world_size - 1 else 0)
        dist.monitored_barrier(wait_all_ranks=True)
        "passed"
        """,
    ),
    program(
        "a gradient flows back through an all_reduce, one rank late",
        lambda n: [float(n)] * n,
        """
        import time
        from torch.distributed.nn.functional import all_reduce
        x = torch.ones(1, requires_grad=True)
        y = all_reduce(2 * x, group=dist.group.WORLD)
        time.sleep(2 if rank == 1 else 0)
        (y / 2).sum().backward()
        x.grad.item()
        """,
    ),
]

TRAINING = [
    program(
        "DDP's join: one rank has fewer batches, another is slow",
        everyone(True),
        """
        import time
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for step in range(2 + rank):
                time.sleep(0.8 if rank == world_size - 1 else 0)
                optimizer.zero_grad()
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
        weights = [None] * world_size
        dist.all_gather_object(weights, model.module.weight.tolist())
        all(w == weights[0] for w in weights)
        """,
    ),
    program(
        "a step of FSDP on the CPU, one rank slow",
        everyone(True),
        """
        import time
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
        alone = [p.detach().clone() for p in model.parameters()]
        mesh = init_device_mesh("cpu", (world_size,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        time.sleep(2 if rank == 0 else 0)
        model(torch.ones(2, 8)).sum().backward()
        all(p.grad is not None and torch.equal(p.full_tensor(), a)
            for p, a in zip(model.parameters(), alone))
        """,
    ),
    program(
        "a checkpoint of many files is written in the background, one rank late",
        everyone(True),
        """
        import os, shutil, tempfile, time, uuid, warnings
        import torch.distributed.checkpoint as dcp
        place = [os.path.join(tempfile.gettempdir(), f"dcp-{uuid.uuid4().hex}")]
        dist.broadcast_object_list(place, 0)
        state = {"weight": torch.full((1000,), 3.0), "step": 7}
        time.sleep(2 if rank == 1 else 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            future = dcp.async_save(state, checkpoint_id=place[0], process_group=dist.group.WORLD)
        """,
        """
        future.result()
        loaded = {"weight": torch.zeros(1000), "step": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(loaded, checkpoint_id=place[0])
        dist.barrier()
        if rank == 0:
            shutil.rmtree(place[0])
        bool((loaded["weight"] == 3).all()) and loaded["step"] == 7
        """,
    ),
]

PROGRAMS = [*HANDLES, *COLLECTIVES, *TRAINING]
