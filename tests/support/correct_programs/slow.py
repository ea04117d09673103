"""Programs that are slow but healthy: large data, work outside Python, ranks that are stopped, and
threads that tick beside it all.
"""

from __future__ import annotations

from .program import everyone, late, on_four, only, program, total

SLOW = [
    program(
        "everybody has come, and there is much to add up",
        lambda n: [float(n)] * n,
        """
        x = torch.ones(100_000_000 // world_size)
        for _ in range(2):
            dist.all_reduce(x)
            x.fill_(1.0)
        dist.all_reduce(x)
        (x.min().item() + x.max().item()) / 2
        """,
    ),
    program(
        "a large tensor goes from rank to rank",
        lambda n: [float(n - 1)] * n,
        """
        import time
        x = torch.zeros(20_000_000)
        if rank:
            dist.recv(x, rank - 1)
            x += 1
        if rank == 0:
            time.sleep(1.5)
        if rank < world_size - 1:
            dist.send(x, rank + 1)
        dist.broadcast(x, world_size - 1)
        x.mean(dtype=torch.float64).item()
        """,
    ),
    late(
        "rank 0 waits for a command, the others for it",
        """
        import subprocess
        subprocess.run(["sleep", "3"], check=True, stdin=subprocess.DEVNULL)
        """,
    ),
    late(
        "the workers of a slow DataLoader on one rank",
        """
        import time
        from torch.utils.data import DataLoader, Dataset
        class Slow(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                time.sleep(0.6)
                return float(index)
        assert sum(batch.sum() for batch in DataLoader(Slow(), batch_size=4, num_workers=2)) == 28
        """,
        by=1,
    ),
    program(
        "a rank is stopped for three seconds while the others wait for it",
        total,
        """
        import os, subprocess, time
        x, pids = torch.tensor([rank + 1.0]), [None] * world_size
        dist.all_gather_object(pids, os.getpid())
        if rank == 0:
            script = f"kill -STOP {pids[-1]}; sleep 3; kill -CONT {pids[-1]}"
            child = subprocess.Popen(["sh", "-c", script])
        if rank == world_size - 1:
            time.sleep(1)
        dist.all_reduce(x)
        if rank == 0:
            child.wait()
        x.item()
        """,
    ),
    late(
        "an extension in C sleeps without giving the interpreter free",
        """
        import ctypes
        ctypes.PyDLL(None).sleep(3)
        """,
    ),
    program(
        "a rank reads from a pipe that a command of another rank fills",
        only(0, 1.0, 0.0),
        """
        import os, subprocess, tempfile, uuid
        pipe, x = [os.path.join(tempfile.gettempdir(), f"pipe-{uuid.uuid4().hex}")], torch.zeros(1)
        dist.broadcast_object_list(pipe, 0)
        if rank == 0:
            os.mkfifo(pipe[0])
            child = subprocess.Popen(["sh", "-c", f"sleep 2; echo 1 > {pipe[0]}"])
        dist.barrier()
        if rank == 1:
            with open(pipe[0]) as file:
                dist.send(torch.tensor([float(file.read())]), 0)
        if rank == 0:
            dist.recv(x, 1)
            child.wait()
            os.remove(pipe[0])
        x.item()
        """,
    ),
    program(
        "ranks take turns with a lock on a file",
        everyone(True),
        """
        import fcntl, os, tempfile, time, uuid
        place = [os.path.join(tempfile.gettempdir(), f"lock-{uuid.uuid4().hex}")]
        dist.broadcast_object_list(place, 0)
        with open(place[0], "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(3 / world_size)  # each prepares its share of the data
            fcntl.flock(file, fcntl.LOCK_UN)
        dist.barrier()
        if rank == 0:
            os.remove(place[0])
        True
        """,
    ),
]

#: On four ranks only, by their numbers.
OF_FOUR = [
    late(
        "one rank computes for a minute while the others wait",
        """
        import time
        end = time.monotonic() + 60
        while time.monotonic() < end:
            torch.ones(300, 300) @ torch.ones(300, 300)
        """,
        by=3,
    ),
    program(
        "a chain of messages, each rank slow",
        lambda n: [1.0, 3.0, 6.0, 10.0],
        """
        import time
        x = torch.zeros(1)
        if rank:
            dist.recv(x, rank - 1)
        time.sleep(1)
        x += rank + 1
        if rank < 3:
            dist.send(x, rank + 1)
        x.item()
        """,
    ),
    program(
        "an asynchronous all_reduce is started first and waited for last",
        total,
        """
        import time
        x = torch.tensor([rank + 1.0])
        if rank == 2:
            time.sleep(2)
        work = dist.all_reduce(x, async_op=True)
        if rank != 2:
            time.sleep(2)
        work.wait()
        x.item()
        """,
    ),
    program(
        "one sub-group works on while the other has ended its cell",
        lambda n: [1.0, 2.0, 3.0, 4.0],
        """
        import time
        a = dist.new_group([0, 1])
        if rank < 2:
            for _ in range(3):
                time.sleep(0.7 * rank)
                dist.barrier(group=a)
        rank + 1.0
        """,
    ),
    program(
        "more calls than the recorder keeps, after one that somebody waits for",
        total,
        """
        import time
        x, y = torch.tensor([rank + 1.0]), torch.ones(1)
        own = dist.new_group([1])
        if rank == 1:
            work = dist.all_reduce(x, async_op=True)
            for _ in range(300):
                dist.all_reduce(y, group=own)
            work.wait()
        else:
            time.sleep(3 if rank == 2 else 0)
            dist.all_reduce(x)
        x.item()
        """,
    ),
    program(
        "a receive from any takes another rank's message",
        everyone(1.0),
        """
        import time
        x = torch.ones(1)
        if rank == 0:
            time.sleep(0.5)
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(x)
            dist.recv(x, 2)
            dist.recv(x)
        elif rank == 2:
            dist.send(x, 1)
            time.sleep(3)
            dist.send(x, 1)
        x.item()
        """,
    ),
]

TICKING = [
    program(
        "a progress bar with its monitor, and a barrier at the end",
        lambda n: [float(n)] * n,
        """
        import io, time
        from tqdm import tqdm
        x = torch.zeros(1)
        for _ in tqdm(range(5), file=io.StringIO(), mininterval=0.1):
            time.sleep(0.5 if rank == 0 else 0)
            x += 0.2
        dist.all_reduce(x)
        round(x.item(), 4)
        """,
    ),
    program(
        "a thread of the user's ticks on every rank, a timer brings what they wait for",
        lambda n: [7.0] * n,
        """
        import threading, time
        stop, x = threading.Event(), torch.zeros(1)
        ticks = []
        def tick():
            while not stop.wait(0.05):
                ticks.append(time.monotonic())
        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        if rank == 0:
            y = torch.tensor([7.0])
            timer = threading.Timer(2, dist.broadcast, (y, 0))
            timer.start()
        else:
            dist.broadcast(x, 0)
        """,
        """
        if rank == 0:
            timer.join()
            x = y
        stop.set()
        ticker.join()
        x.item()
        """,
    ),
]

PROGRAMS = on_four([*SLOW, *OF_FOUR, *TICKING])
