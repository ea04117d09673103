"""Programs in which a rank that has ended its cell, or waits itself, still provides something.

What comes, comes from a thread, an executor, an asyncio task, a timer, a signal handler, a
function that another rank calls, or a callback.
"""

from __future__ import annotations

from .program import everyone, only, program, provided, total

THREADS = [
    provided(
        "a thread of a rank that has ended its cell sends",
        5.0,
        """
        import threading, time
        def later():
            time.sleep(2)
            dist.send(torch.tensor([5.0]), 1)
        threading.Thread(target=later).start()
        """,
    ),
    provided(
        "a timer calls dist.send itself",
        1.0,
        """
        import threading
        threading.Timer(2, dist.send, args=(torch.ones(1), 1)).start()
        """,
    ),
    program(
        "an executor makes the all_reduce of a rank that has ended its cell",
        total,
        """
        import time
        from concurrent.futures import ThreadPoolExecutor
        x = torch.tensor([rank + 1.0])
        def late():
            time.sleep(2)
            dist.all_reduce(x)
        if rank == 0:
            pool = ThreadPoolExecutor(1)
            future = pool.submit(late)
        else:
            dist.all_reduce(x)
        """,
        """
        if rank == 0:
            future.result()
            pool.shutdown()
        x.item()
        """,
    ),
    program(
        "rank 0 waits for its executor, whose threads wait for the other ranks",
        lambda n: [sum(range(1, n)), *range(1, n)],
        """
        import time
        from concurrent.futures import ThreadPoolExecutor
        def fetch(peer):
            y = torch.zeros(1, dtype=torch.int64)
            dist.recv(y, peer, tag=peer)
            return y.item()
        if rank == 0:
            with ThreadPoolExecutor(world_size) as pool:
                value = sum(pool.map(fetch, range(1, world_size)))
        else:
            time.sleep(1 + 0.5 * rank)
            dist.send(torch.tensor([rank]), 0, tag=rank)
            value = rank
        value
        """,
    ),
    program(
        "a thread waits for a message before it sends the one that rank 0 waits for",
        only(0, 8.0, 0.0),
        """
        import threading, time
        x = torch.zeros(1)
        def answer():
            y = torch.zeros(1)
            dist.recv(y, 0, tag=1)
            time.sleep(1.5)
            dist.send(2 * y, 0, tag=2)
        if rank == 0:
            timer = threading.Timer(1.5, dist.send, (torch.tensor([4.0]), 1), {"tag": 1})
            timer.start()
            dist.recv(x, 1, tag=2)
            timer.join()
        if rank == 1:
            threading.Thread(target=answer).start()
        x.item()
        """,
    ),
    program(
        "the main thread waits for an event that a thread sets after its all_reduce",
        total,
        """
        import threading, time
        x, done = torch.tensor([rank + 1.0]), threading.Event()
        def reduce():
            if rank == 1:
                time.sleep(2)
            dist.all_reduce(x)
            done.set()
        threading.Thread(target=reduce).start()
        done.wait()
        x.item()
        """,
    ),
    program(
        "a thread of one rank's own holds a lock that its main thread wants",
        total,
        """
        import threading, time
        x, lock, held = torch.tensor([rank + 1.0]), threading.Lock(), threading.Event()
        def hold():
            with lock:
                held.set()
                time.sleep(2)
        if rank == world_size - 1:
            threading.Thread(target=hold).start()
            held.wait()
        with lock:
            dist.all_reduce(x)
        x.item()
        """,
    ),
]

LOOP = [
    provided(
        "an asyncio task that the cell leaves behind sends",
        4.0,
        """
        import asyncio
        async def later():
            await asyncio.sleep(2)
            dist.send(torch.tensor([4.0]), 1)
        task = asyncio.get_running_loop().create_task(later())
        """,
    ),
    provided(
        "the loop calls dist.send later",
        2.0,
        """
        import asyncio
        asyncio.get_running_loop().call_later(2, dist.send, torch.tensor([2.0]), 1)
        """,
    ),
    provided(
        "the loop reads from a command's pipe and sends what comes",
        8.0,
        """
        import asyncio, subprocess
        def pass_on(pipe):
            loop.remove_reader(pipe)
            dist.send(torch.tensor([float(pipe.readline())]), 1)
        loop = asyncio.get_running_loop()
        out = subprocess.Popen(["sh", "-c", "sleep 2; echo 8"], stdout=subprocess.PIPE)
        loop.add_reader(out.stdout, pass_on, out.stdout)
        """,
        after="out.stdout.close()\nout.wait()",
    ),
]

SIGNALS = [
    provided(
        "a handler of SIGALRM sends when the timer of the system runs out",
        3.0,
        """
        import signal
        def ring(signum, frame):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            dist.send(torch.tensor([3.0]), 1)
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 2)
        """,
    ),
    provided(
        "a process outside rouses an idle rank with SIGUSR2",
        2.0,
        """
        import os, signal, subprocess
        def wake(signum, frame):
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)
            dist.send(torch.tensor([2.0]), 1)
        signal.signal(signal.SIGUSR2, wake)
        child = subprocess.Popen(["sh", "-c", f"sleep 2; kill -USR2 {os.getpid()}"])
        """,
        after="child.wait()",
    ),
]

#: Every rank of RPC's agent; the last cell of each program ends it.
_AGENT = """
import tempfile, time, uuid, os
import torch.distributed.rpc as rpc
place = [os.path.join(tempfile.gettempdir(), f"rpc-{uuid.uuid4().hex}")]
dist.broadcast_object_list(place, 0)
options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{place[0]}")
rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
def send_late(value, peer):
    time.sleep(2)
    dist.send(torch.tensor([value]), peer)
def reduce_late(value):
    time.sleep(2)
    y = torch.tensor([value])
    dist.all_reduce(y)
    return y.item()
value = 0.0
dist.barrier()
"""

RPC = [
    program(
        "an RPC function sends from a rank that has ended its cell",
        only(0, 5.0, 0.0),
        _AGENT,
        """
        if rank == 0:
            x = torch.zeros(1)
            future = rpc.rpc_async("rank1", send_late, args=(5.0, 0))
            dist.recv(x, 1)
            future.wait()
            value = x.item()
        """,
        "rpc.shutdown()\nvalue",
    ),
    program(
        "an RPC function makes the all_reduce of an idle rank",
        lambda n: [0.0, *[float(n)] * (n - 1)],
        _AGENT,
        """
        if rank == 1:
            future = rpc.rpc_async("rank0", reduce_late, args=(1.0,))
        if rank:
            x = torch.ones(1)
            dist.all_reduce(x)
            value = x.item()
        if rank == 1:
            assert future.wait() == value
        """,
        "rpc.shutdown()\nvalue",
    ),
    program(
        "rpc_sync to a rank that is slow to answer, while others wait for the caller",
        lambda n: [float(n)] * n,
        _AGENT,
        """
        def slow_sum(a, b):
            time.sleep(2)
            return a + b
        dist.barrier()
        x = torch.tensor([1.0])
        if rank == 0:
            x = rpc.rpc_sync("rank1", slow_sum, args=(torch.ones(1), torch.zeros(1)))
        dist.all_reduce(x)
        value = x.item()
        """,
        "rpc.shutdown()\nvalue",
    ),
    program(
        "one rank comes late to rpc.shutdown",
        everyone(0.0),
        _AGENT,
        "if rank == 1:\n    time.sleep(2)\nrpc.shutdown()\nvalue",
    ),
]

CALLBACKS = [
    program(
        "a callback of a collective's future sends",
        only(1, 2.0, None),
        """
        import time
        pair, value = dist.new_group([0, 1]), None
        def report(future):
            time.sleep(2)
            dist.send(future.value()[0], 1)
        y = torch.ones(1)
        if rank == 0:
            chain = dist.all_reduce(y, group=pair, async_op=True).get_future().then(report)
        if rank == 1:
            dist.all_reduce(y, group=pair)
            x = torch.zeros(1)
            dist.recv(x, 0)
            value = x.item()
        value
        """,
        "if rank == 0:\n    chain.wait()\nvalue",
    ),
    program(
        "DDP with a communication hook in Python and one slow rank",
        lambda n: [(n + 1) / 2] * n,
        """
        import time
        def hook(state, bucket):
            work = dist.all_reduce(bucket.buffer() / world_size, async_op=True)
            return work.get_future().then(lambda future: future.value()[0])
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
        model.register_comm_hook(None, hook)
        for step in range(2):
            model.zero_grad()
            time.sleep(1.7 if rank == step else 0)
            model(torch.full((1, 4), rank + 1.0)).sum().backward()
        model.module.weight.grad.mean().item()
        """,
    ),
    program(
        "hooks of autograd issue all_reduces while one rank's backward takes its time",
        total,
        """
        import time
        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, grad):
                time.sleep(2 if rank == 1 else 0)
                return grad
        works = []
        def reduce(p):
            works.append(dist.all_reduce(p.grad, async_op=True))
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1, bias=False))
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(reduce)
        hidden = Slow.apply(model[0](torch.ones(1, 4)))
        (model[1](torch.ones(1, 4)) * (rank + 1) + 0 * hidden.sum()).sum().backward()
        for work in works:
            work.wait()
        model[1].weight.grad.mean().item()
        """,
    ),
]

PROCESSES = [
    program(
        "a forked child of a rank sets the key that another rank waits for",
        only(0, "ready", None),
        """
        import multiprocessing, time
        value, port = None, [None]
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port = [store.port]
        dist.broadcast_object_list(port, 0)
        def child(port):
            time.sleep(2)
            dist.TCPStore("127.0.0.1", port, is_master=False).set("state", "ready")
        if rank == 1:
            process = multiprocessing.get_context("fork").Process(target=child, args=port)
            process.start()
        if rank == 0:
            value = store.get("state").decode()
        value
        """,
        "if rank == 1:\n    process.join()\nvalue",
    ),
    program(
        "a pool of processes computes what rank 0 sends, the others wait for it",
        everyone(30.0),
        """
        import multiprocessing, time
        from concurrent.futures import ProcessPoolExecutor
        x = torch.zeros(1)
        def square(number):
            time.sleep(1.2)
            return number * number
        if rank == 0:
            with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
                x += sum(pool.map(square, [1, 2, 3, 4]))
        dist.broadcast(x, 0)
        x.item()
        """,
    ),
    provided(
        "a rank takes from a queue that its child process fills",
        11.0,
        """
        import multiprocessing, time
        def produce(queue):
            time.sleep(2)
            queue.put(11.0)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(target=produce, args=(queue,))
        child.start()
        dist.send(torch.tensor([queue.get()]), 0)
        child.join()
        """,
        by=1,
        to=0,
    ),
]

PROGRAMS = [*THREADS, *LOOP, *SIGNALS, *RPC, *CALLBACKS, *PROCESSES]
