"""Cells in which ranks wait forever, as their authors wrote them by mistake.

Every program was run with nobody watching it: the ranks of ``stuck`` are still there after five
seconds, on two and on four ranks. ``tests/ranks/test_faults.py`` has the plain ones; these wait in
threads, in stores, in handles of another cell, beside threads that tick.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from labkit import Deadlock, RankDied, RankError

#: Must be certain; must not be (something that labkit cannot see could still come); may be both.
PROVED, SUSPECTED, EITHER = "proved", "suspected", "either"


def nobody(n: int) -> set[int]:
    """No rank."""
    return set()


@dataclass(frozen=True)
class Program:
    """A cell that cannot end.

    In a cell the code begins in line 2, below the line of the magic.
    """

    name: str
    code: str
    stuck: Callable[[int], set[int]] | None  #: by the number of ranks; None: it differs
    line: int | None  #: of the call that waits, in any thread; None: it differs
    says: tuple[str, ...] = ()  #: patterns of the message
    answer: Literal["proved", "suspected", "either"] = PROVED
    doubts: tuple[str, ...] = ()  #: patterns of what could still come, where it is suspected
    before: str = ""  #: run first, as In[6]
    after: str = ""  #: ends what the program left running
    ranks: Callable[[int], list[int]] | None = None  #: that run the cell, all if None
    sizes: tuple[int, ...] = (2, 4)
    errors: tuple[type[RankError], ...] = (Deadlock,)
    perhaps: Callable[[int], set[int]] = nobody  #: that wait or not, by chance
    dead: int | None = None  #: the rank that ends

    @property
    def cell(self) -> str:
        """The code as ``%%px`` sends it from In[7]."""
        return cell(self.code, 7)


def cell(code: str, number: int) -> str:
    """Return code as ``%%px`` sends it from a cell with this number."""
    return f"#px In[{number}]\n{textwrap.dedent(code).strip()}\n"


def but(rank: int) -> Callable[[int], set[int]]:
    """Everybody but one rank."""
    return lambda n: set(range(n)) - {rank}


def only(*ranks: int) -> Callable[[int], set[int]]:
    """These ranks, however many there are."""
    return lambda n: set(ranks)


def everyone(n: int) -> set[int]:
    """All ranks."""
    return set(range(n))


def but_the_last(n: int) -> set[int]:
    """Everybody but the last rank."""
    return set(range(n - 1))


#: Of a cell's text: a thread's target.
TICK = """
        import threading, time
        ticking = True
        def tick():
            while ticking:
                time.sleep(0.1)"""

THREADS = [
    Program(
        "a thread ticks on the rank that waits",
        TICK
        + """
        x = torch.ones(1)
        if rank == 1:
            threading.Thread(target=tick, daemon=True).start()
            dist.recv(x, 0)
        """,
        only(1), 10, ("rank 0, which has ended its cell", "recv from rank 0"),
        after="ticking = False; time.sleep(0.3)",
    ),
    Program(
        "a thread ticks on the rank that others wait for",
        TICK
        + """
        if rank == 0:
            threading.Thread(target=tick, daemon=True).start()
        else:
            dist.all_reduce(torch.ones(1))
        """,
        but(0), 10, ("rank 0", r"all_reduce \(float32 \[1\]"), SUSPECTED,
        (r"rank 0.*Thread-\d+ \(tick\)",), after="ticking = False; time.sleep(0.3)",
    ),
    Program(
        "a thread ticks where two ranks both receive first",
        TICK
        + """
        if rank == 0:
            threading.Thread(target=tick, daemon=True, name="heartbeat").start()
        x = torch.ones(1)
        if rank < 2:
            dist.recv(x, rank ^ 1)
            dist.send(x, rank ^ 1)
        """,
        only(0, 1), 11, ("recv",), SUSPECTED, ("rank 0.*heartbeat",),
        after="ticking = False; time.sleep(0.3)",
    ),
    Program(
        "a thread computes on every rank and one skips",
        """
        import threading
        counting = True
        def count():
            while counting:
                torch.ones(64, 64) @ torch.ones(64, 64)
                __import__("time").sleep(0.02)
        threading.Thread(target=count, daemon=True, name="statistics").start()
        if rank:
            dist.barrier()
        """,
        but(0), 10, ("barrier",), SUSPECTED, ("rank 0.*statistics",), after="counting = False",
    ),
    Program(
        "tqdm's monitor runs on every rank",
        """
        from tqdm import tqdm
        x = torch.ones(1)
        for step in tqdm(range(4), disable=False, file=open("/dev/null", "w")):
            if rank == 0 and step == 2:
                break
            dist.all_reduce(x)
        """,
        but(0), 7, ("rank 0, which has ended its cell", "made this call too, but fewer times"),
    ),
    Program(
        "a listener of log records runs on the rank that skips",
        """
        import logging, logging.handlers, queue
        records = queue.Queue()
        listener = logging.handlers.QueueListener(records, logging.NullHandler())
        listener.start()
        log = logging.getLogger("training")
        log.handlers = [logging.handlers.QueueHandler(records)]
        log.warning("rank %d begins", rank)
        if rank:
            dist.all_reduce(torch.ones(2))
        """,
        but(0), 10, ("rank 0, which has ended its cell", r"all_reduce \(float32 \[2\]"),
        after="listener.stop(); log.handlers = []",
    ),
    Program(
        "a worker of a data loader lives on the rank that skips",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(list(range(8)), batch_size=2, num_workers=1, persistent_workers=True)
        if rank == 0:
            batches = iter(loader)
            first = next(batches)
        else:
            dist.barrier()
        """,
        but(0), 8, ("rank 0, which has ended its cell",),
        after="if rank == 0: batches._shutdown_workers(); del batches",
    ),
    Program(
        "a task of asyncio ticks on the rank that skips",
        """
        import asyncio
        async def report():
            while True:
                await asyncio.sleep(0.1)
        if rank == 0:
            task = asyncio.get_event_loop().create_task(report())
        else:
            dist.all_reduce(torch.ones(1))
        """,
        but(0), 9, ("rank 0", "all_reduce"), SUSPECTED, ("task of rank 0",),
        after="if rank == 0: task.cancel()",
    ),
    Program(
        "a timer of asyncio's loop is set on the rank that skips",
        """
        import asyncio
        if rank == 0:
            reminder = asyncio.get_event_loop().call_later(60, print, "still there?")
        else:
            dist.all_reduce(torch.ones(1))
        """,
        but(0), 6, ("rank 0", "all_reduce"), EITHER, ("rank 0",),
        after="if rank == 0: reminder.cancel()",
    ),
    Program(
        "a task would send, but its rank's main thread waits",
        """
        import asyncio
        x, y = torch.ones(1), torch.zeros(1)
        async def send():
            dist.send(x, 0)
        if rank == 1:
            task = asyncio.get_event_loop().create_task(send())
            dist.recv(y, 0)
        elif rank == 0:
            dist.recv(y, 1)
            dist.send(x, 1)
        """,
        only(0, 1), None, ("line 8", "line 10", "recv from rank 1"),
    ),
    Program(
        "a handler for a signal is set on the rank that skips",
        """
        import signal
        if rank == 0:
            before = signal.signal(signal.SIGUSR1, lambda number, frame: print("save"))
        else:
            dist.barrier()
        """,
        but(0), 6, ("rank 0", "barrier"), EITHER, ("SIGUSR1",),
        after="if rank == 0: signal.signal(signal.SIGUSR1, before)",
    ),
]  # fmt: skip

ELSEWHERE = [
    Program(
        "an executor receives what nobody sends",
        """
        from concurrent.futures import ThreadPoolExecutor
        x = torch.ones(1)
        pool = ThreadPoolExecutor(1)
        if rank == 1:
            pool.submit(dist.recv, x, 0).result()
        """,
        only(1), 6, ("rank 0, which has ended its cell", "recv from rank 0"),
        after="pool.shutdown(wait=False)",
    ),
    Program(
        "a thread receives and the main thread joins it, on both sides",
        """
        import threading
        x = torch.ones(1)
        thread = threading.Thread(target=dist.recv, args=(x, rank ^ 1))
        thread.start()
        thread.join()
        dist.send(x, rank ^ 1)
        """,
        everyone, 6, ("recv from rank 0", "recv from rank 1"),
    ),
    Program(
        "an executor's task starts a thread that reduces with a rank that does not",
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        x = torch.ones(3)
        def reduce():
            thread = threading.Thread(target=dist.all_reduce, args=(x,))
            thread.start()
            thread.join()
        with ThreadPoolExecutor(1) as pool:
            if rank:
                pool.submit(reduce).result()
        """,
        but(0), 11, ("rank 0, which has ended its cell", r"all_reduce \(float32 \[3\]"),
    ),
    Program(
        "a thread receives while the main thread reduces",
        """
        import threading
        x, y = torch.ones(1), torch.ones(1)
        if rank == 1:
            thread = threading.Thread(target=dist.recv, args=(y, 0))
            thread.start()
        if rank:
            dist.all_reduce(x)
        """,
        but(0), 8, ("rank 0, which has ended its cell",),
    ),
    Program(
        "the end of a with block waits for a task that waits",
        """
        from concurrent.futures import ThreadPoolExecutor
        if rank == 0:
            with ThreadPoolExecutor(2) as pool:
                pool.submit(dist.barrier)
                print("submitted")
        """,
        only(0), 4, ("for ranks? 1", "barrier"),
    ),
    Program(
        "the main thread gets from a queue that a receiving thread fills",
        """
        import queue, threading
        box = queue.Queue()
        def receive():
            x = torch.zeros(1)
            dist.recv(x, 0)
            box.put(x)
        if rank == 1:
            threading.Thread(target=receive, daemon=True).start()
            box.get()
        """,
        only(1), 6, ("rank 0, which has ended its cell", "recv from rank 0"), EITHER,
    ),
    Program(
        "the main thread wants a lock that a receiving thread holds",
        """
        import threading, time
        lock = threading.Lock()
        def receive():
            with lock:
                dist.recv(torch.zeros(1), 0)
        if rank == 1:
            threading.Thread(target=receive, daemon=True).start()
            time.sleep(0.2)
            lock.acquire()
        """,
        only(1), 6, ("rank 0, which has ended its cell", "recv from rank 0"), EITHER,
    ),
    Program(
        "coroutines run in a thread that the main thread joins",
        """
        import asyncio, threading
        async def meet():
            await asyncio.gather(asyncio.sleep(0.1), asyncio.to_thread(dist.barrier))
        if rank:
            thread = threading.Thread(target=asyncio.run, args=(meet(),))
            thread.start()
            thread.join()
        """,
        but(0), 8, ("rank 0, which has ended its cell", "barrier"), EITHER,
    ),
]  # fmt: skip

GROUPS = [
    Program(
        "ranks make two groups in another order",
        """
        last = world_size - 1
        sizes = [world_size, last] if rank == 0 else [last, world_size]
        groups = [dist.new_group(list(range(size))) for size in sizes]
        """,
        everyone, 4, ("new_group", "order"), EITHER,
    ),
    Program(
        "a rank leaves out a group that it is a member of",
        """
        groups = []
        for r in range(world_size - 1):
            if rank == 0 and r == 0:
                continue
            groups.append(dist.new_group([r, r + 1]))
        """,
        but(0), 6, ("new_group", "rank 0"), EITHER,
    ),
    Program(
        "a member is missing where the members alone make a group",
        """
        if rank == 1:
            pair = dist.new_group([0, 1], use_local_synchronization=True)
        """,
        only(1), 3, ("rank 0", "new_group"),
    ),
    Program(
        "new_subgroups on some ranks",
        """
        if rank:
            own, groups = dist.new_subgroups(group_size=2)
        """,
        only(1), 3, ("rank 0", "new_subgroups|new_group"),
    ),
    Program(
        "a message is sent in one group and received in another",
        """
        pair = dist.new_group([0, 1])
        x = torch.ones(1)
        if rank == 0:
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(x, 0, group=pair)
        """,
        only(0, 1), None, ("line 5", "line 7", "in group"),
    ),
]  # fmt: skip

MESSAGES = [
    Program(
        "the handle of isend is dropped and the receive comes late",
        """
        import time
        x = torch.ones(1)
        if rank == 0:
            dist.isend(x, 1)
        elif rank == 1:
            time.sleep(0.5)
            dist.recv(x, 0)
        """,
        only(1), 8, ("recv from rank 0",), EITHER,
    ),
    Program(
        "the handle of irecv is dropped, and its message is in the way of the next call",
        """
        import time
        x = torch.ones(1)
        if rank == 0:
            time.sleep(0.5)
            dist.send(x, 1)
        elif rank == 1:
            dist.irecv(x, 0)
        dist.all_reduce(x)
        """,
        everyone, 9, ("all_reduce",), EITHER,
    ),
    Program(
        "the order of two tags differs",
        """
        x = torch.ones(1)
        if rank == 0:
            dist.send(x, 1, tag=1)
            dist.send(x, 1, tag=2)
        elif rank == 1:
            dist.recv(x, 0, tag=2)
            dist.recv(x, 0, tag=1)
        """,
        only(0, 1), None, ("line 4", "line 7", "The tags differ"),
    ),
    Program(
        "everybody takes from anybody first",
        """
        x = torch.ones(1)
        dist.recv(x)
        dist.send(x, (rank + 1) % world_size)
        """,
        everyone, 3, ("recv from any rank",),
    ),
    Program(
        "a send before the barrier that the receiver passes first",
        """
        x = torch.ones(1)
        if rank == 0:
            dist.send(x, 1)
            dist.barrier()
        else:
            dist.barrier()
            if rank == 1:
                dist.recv(x, 0)
        """,
        everyone, None,
        ("line 4", "line 7", "Some ranks wait in a collective, others for a message"),
    ),
    Program(
        "a partner is missing in batch_isend_irecv",
        """
        x, y = torch.ones(1), torch.zeros(1)
        right, left = (rank + 1) % world_size, (rank - 1) % world_size
        ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]
        if rank:
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        """,
        lambda n: {1} if n == 2 else {1, 3}, 7, ("rank 0, which has ended its cell",),
    ),
    Program(
        "a pipeline's stage runs one micro-batch fewer",
        """
        x = torch.ones(2)
        for micro_batch in range(3 if rank == 0 else 4):
            if rank > 0:
                dist.recv(x, rank - 1)
            if rank < world_size - 1:
                dist.send(x, rank + 1)
        """,
        but(0), 5, ("for rank 0", "recv from rank 0"),
    ),
]  # fmt: skip

STORES = [
    Program(
        "a key of the default store that nobody sets",
        """
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            store.get("learning rate")
        """,
        only(1), 4, ("store", "learning rate"), EITHER,
    ),
    Program(
        "every rank waits for two keys and sets one",
        """
        from datetime import timedelta
        store = dist.distributed_c10d._get_default_store()
        store.set("ready", "1")
        store.wait(["ready", "steady"], timedelta(hours=1))
        """,
        everyone, 5, ("store", "steady"), EITHER,
    ),
    Program(
        "a server of a store waits for clients that do not come",
        """
        from datetime import timedelta
        hour = timedelta(hours=1)
        if rank == 0:
            own = dist.TCPStore("127.0.0.1", 0, world_size, True, timeout=hour)
        """,
        only(0), 5, ("[Ss]tore",), EITHER,
    ),
    Program(
        "a store of its own of which one rank wants a key too many",
        """
        from datetime import timedelta
        port = [0]
        hour = timedelta(hours=1)
        if rank == 0:
            own = dist.TCPStore("127.0.0.1", 0, None, True, hour, wait_for_workers=False)
            port = [own.port]
        dist.broadcast_object_list(port, 0)
        if rank:
            own = dist.TCPStore("127.0.0.1", port[0], None, False, hour)
        own.set(f"loss/{rank}", "0.1")
        if rank == 0:
            losses = [own.get(f"loss/{r}") for r in range(world_size + 1)]
        """,
        only(0), 13, ("store", "loss/"), EITHER, after="del own",
    ),
]  # fmt: skip

MISMATCHES = [
    Program(
        "another root of reduce",
        """
        dist.reduce(torch.ones(3), 0 if rank == 0 else 1)
        """,
        only(0, 1), 2, ("different ranks as the destination of reduce",),
    ),
    Program(
        "rows of all_to_all_single are counted wrong on one rank",
        """
        sends, takes = [2] * world_size, [3 if rank == 0 else 2] * world_size
        out = torch.zeros(sum(takes))
        dist.all_to_all_single(out, torch.ones(sum(sends)), takes, sends)
        """,
        but(0), 4, ("^rank 0: RuntimeError: .*alltoall", "all_to_all|waited"), EITHER,
        errors=(RankError,),
    ),
    Program(
        "all_gather of other sizes",
        """
        size = 3 if rank == 0 else 300
        out = [torch.zeros(size) for _ in range(world_size)]
        dist.all_gather(out, torch.ones(size))
        """,
        everyone, 4, ("different shapes|shapes or types probably differ",),
        errors=(Deadlock, RankDied),
    ),
    Program(
        "all_gather of objects here, of tensors there",
        """
        out = [torch.zeros(1) for _ in range(world_size)]
        if rank == 0:
            dist.all_gather_object([None] * world_size, 1.0)
        else:
            dist.all_gather(out, torch.ones(1))
        """,
        everyone, None, ("all_gather",), EITHER, errors=(Deadlock, RankDied, RankError),
    ),
    Program(
        "a rank skips monitored_barrier that has an hour",
        """
        from datetime import timedelta
        if rank != 1:
            dist.monitored_barrier(timeout=timedelta(hours=1))
        """,
        but(1), 4, ("for rank 1", "monitored_barrier"),
    ),
    Program(
        "barrier here, monitored_barrier there",
        """
        if rank == 0:
            dist.monitored_barrier()
        else:
            dist.barrier()
        """,
        everyone, None, ("line 3", "line 5"),
    ),
    Program(
        "a cached function makes the call only once",
        """
        import functools
        @functools.lru_cache
        def mean(name):
            x = torch.ones(1)
            dist.all_reduce(x)
            return x / world_size
        mean("loss"), mean("loss" if rank == 0 else "accuracy")
        """,
        but(0), 6, ("for rank 0", "fewer times"),
    ),
]  # fmt: skip

TRAINING = [
    Program(
        "a loss on one rank does not use a part of the model",
        """
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
            def forward(self, x, both):
                return self.a(x) + self.b(x) if both else self.a(x)
        model = torch.nn.parallel.DistributedDataParallel(Two())
        model(torch.ones(1, 2), rank != 1).sum().backward()
        """,
        but(1), 9, ("for rank 1", "find_unused_parameters"),
    ),
    Program(
        "a step is skipped where a hook compresses the gradients",
        """
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        for step in range(3):
            if rank == 1 and step == 1:
                continue
            model(torch.ones(1, 2)).sum().backward()
        """,
        but(1), 8, ("for rank 1", "backward"),
    ),
    Program(
        "a sampler that deals out unevenly, without model.join",
        """
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        data = torch.ones(4 * world_size - 1, 2)
        for x in data[rank::world_size]:
            model(x[None]).sum().backward()
        """,
        but_the_last, 5, ("fewer training steps", "DistributedSampler"),
    ),
    Program(
        "model.join on one rank alone",
        """
        import contextlib
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        with model.join() if rank == 0 else contextlib.nullcontext():
            for step in range(2):
                model(torch.ones(1, 2)).sum().backward()
        """,
        everyone, None, (), EITHER,
    ),
    Program(
        "a hook of a gradient reduces it on some ranks",
        """
        w = torch.ones(2, requires_grad=True)
        def average(grad):
            dist.all_reduce(grad)
            return grad / world_size
        if rank:
            w.register_hook(average)
        (w * w).sum().backward()
        """,
        but(0), 4, ("for rank 0", "all_reduce"),
    ),
    Program(
        "rank 0 alone gathers the optimizer's state",
        """
        from torch.distributed.optim import ZeroRedundancyOptimizer
        model = torch.nn.Linear(2, 1)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if rank == 0:
            optimizer.consolidate_state_dict()
        """,
        only(0), 8, ("for ranks? 1", "consolidate_state_dict"),
    ),
]  # fmt: skip

HANDLES = [
    Program(
        "a handle of another cell is waited for",
        """
        print("waiting")
        if rank:
            work.wait()
        """,
        but(0), 4, ("rank 0, which has ended its cell", "all_reduce", r"In\[6\], line 3"),
        before="""
        x = torch.ones(2)
        work = dist.all_reduce(x, async_op=True) if rank else None
        """,
    ),
    Program(
        "a function of another cell has the call",
        """
        if rank:
            step()
        """,
        but(0), None, ("for rank 0", "all_reduce", r"In\[6\], line 3"),
        before="""
        def step():
            dist.all_reduce(torch.ones(1))
        """,
    ),
    Program(
        "the future of a collective",
        """
        x = torch.ones(2)
        if rank:
            dist.all_reduce(x, async_op=True).get_future().wait()
        """,
        but(0), 4, ("rank 0, which has ended its cell", "all_reduce"), EITHER,
    ),
    Program(
        "wait_all of the futures of two collectives",
        """
        xs = [torch.ones(2), torch.ones(3)]
        works = [dist.all_reduce(x, async_op=True) for x in xs[:1 if rank == 0 else 2]]
        torch.futures.wait_all([work.get_future() for work in works])
        """,
        but(0), 4, ("rank 0, which has ended its cell", r"all_reduce \(float32 \[3\]"), EITHER,
    ),
    Program(
        "a functional all_gather is looked at",
        """
        import torch.distributed._functional_collectives as funcol
        if rank:
            y = funcol.all_gather_tensor(torch.ones(2), 0, dist.group.WORLD)
            print(y)
        """,
        but(0), None, ("rank 0, which has ended its cell", "all_gather"),
    ),
    Program(
        "a coalesced batch on some ranks",
        """
        a, b = torch.ones(1), torch.ones(2)
        if rank:
            with dist._coalescing_manager(async_ops=True) as batch:
                dist.all_reduce(a)
                dist.all_reduce(b)
            batch.wait()
        """,
        but(0), 7, ("rank 0, which has ended its cell", "all_reduce"),
    ),
]  # fmt: skip

ERRORS = [
    Program(
        "a thread of a rank ends by sys.exit before it sends",
        """
        import sys, threading
        x = torch.ones(1)
        def send():
            sys.exit("no")
            dist.send(x, 1)
        if rank == 0:
            thread = threading.Thread(target=send)
            thread.start()
            thread.join()
        elif rank == 1:
            dist.recv(x, 0)
        """,
        only(1), 12, ("rank 0, which has ended its cell",),
    ),
    Program(
        "a finally has the call that the others have not reached",
        """
        x = torch.ones(1)
        try:
            if rank == 0:
                raise ValueError("boom")
            dist.all_reduce(x)
            dist.all_reduce(x)
        finally:
            dist.barrier()
        """,
        everyone, None, ("line 6", "line 9", "different collectives"), errors=(Deadlock, RankError),
    ),
]  # fmt: skip

#: In a lab with ``join=False``; ``port`` is a free one and ``path`` a file that is not there yet.
#: Afterwards no rank is in a group.
JOINING = [
    Program(
        "each rank has a port of its own",
        """
        import socket
        with socket.create_server(("127.0.0.1", 0)) as probe:
            own = probe.getsockname()[1]
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{own}", rank=rank, world_size=world_size)
        """,
        everyone, 5, ("init_process_group",), EITHER,
    ),
    Program(
        "every rank believes to be rank 0, at one port",
        """
        import time
        time.sleep(0.3 if rank else 0)
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=world_size)
        """,
        only(0), 4, ("^ranks? 1.*: DistNetworkError", r"waited in In\[7\], line 4 for"), EITHER,
        errors=(RankError,),
    ),
    Program(
        "a world of one rank more than the lab has",
        """
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size + 1)
        """,
        everyone, 2, ("init_process_group", r"world_size=\d is more than the \d ranks"), EITHER,
    ),
    Program(
        "two ranks have one number",
        """
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=max(rank, 1),
            world_size=world_size)
        """,
        everyone, 2, ("init_process_group",), EITHER,
    ),
    Program(
        "a rank skips init_process_group",
        """
        if rank != 1:
            dist.init_process_group(
                "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
        """,
        but(1), 3,
        ("rank 1, which has ended its cell", "returns when all world_size ranks have called it"),
    ),
    Program(
        "rank 0 believes in a smaller world",
        """
        size = world_size if rank == 0 else world_size + 1
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        """,
        but(0), 3, ("init_process_group", r"world_size differ: \d on rank 0, \d on ranks? 1"),
        EITHER, perhaps=only(0),
    ),
    Program(
        "the last rank believes in a larger world",
        """
        size = world_size + (rank == world_size - 1)
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        """,
        lambda n: {n - 1}, 3,
        ("init_process_group", r"world_size differ: \d on ranks? 0.*, \d on rank \d\."), EITHER,
        perhaps=everyone,
    ),
]  # fmt: skip

#: Each in a lab of its own: what they leave behind is not to be cleared up. ``path`` is a file
#: that is not there yet.
REMOTE = [
    Program(
        "init_rpc on some ranks",
        """
        from torch.distributed import rpc
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}")
        if rank:
            rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size,
                         rpc_backend_options=options)
        """,
        but(0), 5, ("rank 0", "init_rpc"), EITHER,
    ),
    Program(
        "rpc.shutdown on one rank",
        """
        from torch.distributed import rpc
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size,
                     rpc_backend_options=options)
        if rank == 1:
            rpc.shutdown()
        """,
        only(1), 7, ("rank 1",), EITHER,
    ),
    Program(
        "a remote call waits for a message of its caller",
        """
        from torch.distributed import rpc
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}", rpc_timeout=0)
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size,
                     rpc_backend_options=options)
        if rank == 0:
            x = torch.ones(1)
            rpc.rpc_sync("worker1", dist.recv, (x, 0))
            dist.send(x, 1)
        """,
        only(0), 8, ("rank 0",), EITHER,
    ),
]  # fmt: skip

PROGRAMS = [
    *THREADS,
    *ELSEWHERE,
    *GROUPS,
    *MESSAGES,
    *STORES,
    *MISMATCHES,
    *TRAINING,
    *HANDLES,
    *ERRORS,
]
