"""Programs in which labkit cannot know from the lab's own group who has to come.

Groups that only their members make, groups in another order, groups and stores made by hand. The
last table is for a lab that has no group yet (``join=False``).
"""

from __future__ import annotations

from .program import everyone, only, program, total

#: The path of a file that no other program has, the same on every rank: ``place[0]``.
_PLACE = """
import os, tempfile, uuid
place = [os.path.join(tempfile.gettempdir(), f"world-{uuid.uuid4().hex}")]
dist.broadcast_object_list(place, 0)
"""

#: Joins a world of five, late; comes late to its all_reduce too.
_MEMBER = """
import subprocess, sys
member = '''
import sys, time, torch, torch.distributed as dist
time.sleep(1)
dist.init_process_group("gloo", init_method=sys.argv[1], rank=4, world_size=5)
time.sleep(2)
dist.all_reduce(torch.tensor([4.0]))
dist.destroy_process_group()
'''
"""
#: Is rank 0 of a world of four; tells the others its port, and leaves last.
_FIRST = """
import subprocess, sys
first = '''
import sys, time, torch, torch.distributed as dist
time.sleep(1)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
dist.FileStore(sys.argv[1], -1).set("port", str(store.port))
dist.init_process_group("gloo", store=store, rank=0, world_size=4)
time.sleep(2)
dist.all_reduce(torch.tensor([6.0]))
dist.destroy_process_group()
store.wait([f"rank {r} has left" for r in (1, 2, 3)])
'''
"""

GROUPS = [
    program(
        "only its members make a group, and one of them is late",
        lambda n: [3.0, 3.0, 3.0, 4.0][:n],
        """
        import time
        x = torch.tensor([rank + 1.0])
        if rank == 1:
            time.sleep(2)
        if rank < 2:
            pair = dist.new_group([0, 1], use_local_synchronization=True)
            dist.all_reduce(x, group=pair)
        x.item()
        """,
        reset=True,
    ),
    program(
        "members make two overlapping groups in the order that suits each of them",
        lambda n: [3.0, 6.0, 3.0, 3.0],
        """
        import time
        def make(*ranks):
            return dist.new_group(list(ranks), use_local_synchronization=True)
        if rank == 0:
            time.sleep(2)
        if rank in (0, 1):
            first = make(0, 1)
        if rank in (2, 3):
            third = make(2, 3)
        if rank in (1, 2):
            second = make(1, 2)
        x = torch.tensor([{0: 1.0, 1: 2.0, 2: 2.0, 3: 1.0}[rank]])
        if rank in (0, 1):
            dist.all_reduce(x, group=first)
        if rank in (2, 3):
            dist.all_reduce(x, group=third)
        y = torch.tensor([3.0])
        if rank in (1, 2):
            dist.all_reduce(y, group=second)
        y.item() if rank == 1 else x.item()
        """,
        sizes=(4,),
        reset=True,
    ),
    program(
        "everybody makes a group of two, and one who is not in it is late",
        total,
        """
        import time
        x = torch.tensor([rank + 1.0])
        if rank == world_size - 1:
            time.sleep(2)
        pair = dist.new_group([0, 1])
        if rank < 2:
            dist.barrier(group=pair)
        dist.all_reduce(x)
        x.item()
        """,
    ),
]

BY_HAND = [
    program(
        "a process group object made by hand, with a late member",
        lambda n: [(float(n), n)] * n,
        _PLACE
        + """
import time
if rank == 1:
    time.sleep(2)
store = dist.FileStore(place[0], world_size)
own = dist.ProcessGroupGloo(store, rank, world_size)
x = torch.ones(1)
own.allreduce([x]).wait()
(x.item(), own.size())
""",
    ),
    program(
        "a collective of a process group object made by hand, where one rank is late",
        lambda n: [float(n)] * n,
        _PLACE
        + """
import time
from datetime import timedelta
store = dist.PrefixStore("by-hand", dist.FileStore(place[0], world_size))
own = dist.ProcessGroupGloo(store, rank, world_size, timedelta(minutes=5))
x = torch.ones(1)
if rank == 0:
    time.sleep(2)
own.allreduce([x]).wait()
own.barrier().wait()
x.item()
""",
    ),
    program(
        "a message in a process group object made by hand",
        only(0, 3.0, 0.0),
        _PLACE
        + """
import threading
own = dist.ProcessGroupGloo(dist.FileStore(place[0], world_size), rank, world_size)
x = torch.zeros(1)
if rank == 1:
    y = torch.tensor([3.0])
    timer = threading.Timer(2, own.send, ([y], 0, 7))
    timer.start()
if rank == 0:
    own.recv([x], 1, 7).wait()
x.item()
""",
    ),
]

STORES = [
    program(
        "a key of a TCPStore that another rank's timer sets late",
        only(1, b"42", None),
        """
        import threading
        port, value = [None], None
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port = [store.port]
        dist.broadcast_object_list(port, 0)
        if rank == 0:
            threading.Timer(2, store.set, ("answer", "42")).start()
        if rank == 1:
            store = dist.TCPStore("127.0.0.1", port[0], is_master=False)
            value = store.get("answer")
        value
        """,
    ),
    program(
        "a file store's key that the last rank sets late, while rank 0 waits for rank 1",
        lambda n: [1.0, *[0.0] * (n - 1)],
        _PLACE
        + """
import time
store, x = dist.FileStore(place[0], world_size), torch.zeros(1)
if rank == world_size - 1:
    time.sleep(2)
    store.set("dataset", "ready")
if rank == 1:
    store.wait(["dataset"])
    dist.send(torch.ones(1), 0)
if rank == 0:
    dist.recv(x, 1)
x.item()
""",
    ),
    program(
        "a hash store's key that a thread of the rank sets, while the others wait for the rank",
        total,
        """
        import threading
        store, x = dist.HashStore(), torch.tensor([rank + 1.0])
        if rank == 0:
            threading.Timer(2, store.set, ("go", "1")).start()
            store.wait(["go"])
        dist.all_reduce(x)
        x.item()
        """,
    ),
    program(
        "ranks count themselves in on a store that rank 0 polls",
        everyone(True),
        """
        import time
        port = [None]
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port = [store.port]
        dist.broadcast_object_list(port, 0)
        if rank:
            store = dist.TCPStore("127.0.0.1", port[0], is_master=False)
            time.sleep(2)
        count = store.add("here", 1)
        while count < world_size:
            time.sleep(0.02)
            count = store.add("here", 0)
        dist.barrier()
        count == world_size
        """,
    ),
]

#: For a lab with ``join=False``, four ranks; each leaves its group again, once all have joined it:
#: init_process_group returns when a rank has its own connections, and who then leaves at once ends
#: those of others that are still joining (3 of 60 times by PyTorch alone, on a loaded machine).
UNJOINED = [
    program(
        "a world of two in a lab of four, with a late member",
        lambda n: [3.0, 3.0, None, None],
        """
        import time
        value = None
        if rank < 2:
            time.sleep(2 * rank)
            dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
            x = torch.tensor([rank + 1.0])
            time.sleep(2 * (1 - rank))
            dist.all_reduce(x)
            value = x.item()
            dist.destroy_process_group()
        value
        """,
        sizes=(4,),
    ),
    program(
        "groups in a world smaller than the lab",
        lambda n: [None, 1.0, 5.0, 5.0],
        """
        import time
        value = None
        if rank:
            dist.init_process_group(
                "gloo", init_method=f"file://{place}", rank=rank - 1, world_size=3
            )
            dist.barrier()
            if rank == 3:
                time.sleep(2)
            pair = dist.new_group([1, 2])
            x = torch.tensor([float(rank)])
            if rank > 1:
                time.sleep(2 * (3 - rank))
                dist.all_reduce(x, group=pair)
            value = x.item()
            dist.destroy_process_group()
        value
        """,
        sizes=(4,),
    ),
    program(
        "two worlds in one lab, one of them slow",
        lambda n: [2.0, 4.0, 2.0, 4.0],
        """
        import time
        dist.init_process_group(
            "gloo", init_method=f"file://{place}{rank % 2}", rank=rank // 2, world_size=2
        )
        x = torch.tensor([float(rank)])
        if rank == 3:
            time.sleep(2)
        dist.all_reduce(x)
        dist.destroy_process_group()
        x.item()
        """,
        sizes=(4,),
    ),
    program(
        "ranks numbered from the other end",
        lambda n: [9.0, 0.0, 0.0, 10.0],
        """
        import threading, time
        own = world_size - 1 - rank
        dist.init_process_group(
            "gloo", init_method=f"file://{place}", rank=own, world_size=world_size
        )
        x = torch.zeros(1)
        if own == 0:
            timer = threading.Timer(2, dist.send, (torch.tensor([9.0]), 3))
            timer.start()
            dist.recv(x, 3)
            x += 5
            timer.join()
        if own == 3:
            dist.recv(x, 0)
            dist.send(torch.tensor([5.0]), 0)
        dist.barrier()
        dist.destroy_process_group()
        x.item()
        """,
        sizes=(4,),
    ),
    program(
        "a process that a rank starts is a member too",
        everyone(10.0),
        _MEMBER
        + """
if rank == 2:
    child = subprocess.Popen([sys.executable, "-c", member, f"file://{place}"])
dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=5)
x = torch.tensor([float(rank)])
dist.all_reduce(x)
dist.destroy_process_group()
if rank == 2:
    assert child.wait() == 0
x.item()
""",
        sizes=(4,),
    ),
    program(
        "a process that a rank starts opens the store and is rank 0",
        everyone(6.0),
        _FIRST
        + """
x = torch.zeros(1)
if rank == 0:
    child = subprocess.Popen([sys.executable, "-c", first, place])
    assert child.wait() == 0
    x += 6
else:
    port = int(dist.FileStore(place, -1).get("port"))
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
    dist.all_reduce(x)
    dist.destroy_process_group()
    store.set(f"rank {rank} has left", "")
x.item()
""",
        sizes=(4,),
    ),
    program(
        "the tutorial's two functions, each with its own world, and slow ranks",
        everyone((10.0, 4.0)),
        """
        import time
        def first():
            dist.init_process_group(
                "gloo", init_method=f"file://{place}a", rank=rank, world_size=world_size
            )
            time.sleep(2 if rank == 2 else 0)
            x = torch.tensor([rank + 1.0])
            dist.all_reduce(x)
            dist.destroy_process_group()
            return x.item()
        def second():
            time.sleep(2 if rank == 0 else 0)
            dist.init_process_group(
                "gloo", init_method=f"file://{place}b", rank=rank, world_size=world_size
            )
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4, bias=False))
            model(torch.ones(1, 4)).sum().backward()
            dist.destroy_process_group()
            return model.module.weight.grad.sum().item() / 4
        (first(), second())
        """,
        sizes=(4,),
    ),
]

PROGRAMS = [*GROUPS, *BY_HAND, *STORES]
