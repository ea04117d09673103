"""Programs with time limits of their own, which run out and are survived, or nearly run out."""

from __future__ import annotations

from .program import late, on_four, only, program, total

LIMITS = [
    program(
        "a group's limit ends its all_reduce, which is survived",
        only(0, "Timed out", "not called"),
        """
        import time
        from datetime import timedelta
        pair, value = dist.new_group([0, 1], timeout=timedelta(seconds=2.5)), "not called"
        if rank == 0:
            began = time.monotonic()
            try:
                dist.all_reduce(torch.ones(1), group=pair)
            except RuntimeError as error:
                assert time.monotonic() - began > 2
                value = "Timed out" if "Timed out" in str(error) else str(error)
        value
        """,
    ),
    program(
        "a wait for a message with a limit, which runs out",
        only(0, True, False),
        """
        import time
        from datetime import timedelta
        pair, late = dist.new_group([0, 1]), False
        if rank == 0:
            work, began = dist.irecv(torch.zeros(1), 1, group=pair), time.monotonic()
            try:
                work.wait(timedelta(seconds=2.5))
            except RuntimeError:
                late = time.monotonic() - began > 2
        late
        """,
    ),
    program(
        "a wait for an all_reduce with a limit, in time after all",
        total,
        """
        import time
        from datetime import timedelta
        x = torch.tensor([rank + 1.0])
        if rank == 1:
            time.sleep(2.5)
        work = dist.all_reduce(x, async_op=True)
        work.wait(timedelta(seconds=50))
        x.item()
        """,
    ),
    program(
        "a monitored barrier with a limit names the one that is late",
        only(0, True, None),
        """
        import time
        from datetime import timedelta
        pair, value = dist.new_group([0, 1]), None
        if rank == 0:
            try:
                dist.monitored_barrier(pair, timeout=timedelta(seconds=2.5))
            except RuntimeError as error:
                value = "Rank 1 failed to pass monitoredBarrier in 2500 ms" in str(error)
        value
        """,
    ),
    late(
        "store.wait with a limit runs out while the others wait in an all_reduce",
        """
        from datetime import timedelta
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        try:
            store.wait(["nobody sets this"], timedelta(seconds=2.5))
        except dist.DistStoreError:
            x += 0
        """,
        by=1,
    ),
    late(
        "a rank tries for a store that is not there until its limit, the others wait for it",
        """
        import socket
        from datetime import timedelta
        with socket.socket() as taken:  # bound but not listening: refused, every time
            taken.bind(("127.0.0.1", 0))
            port, limit = taken.getsockname()[1], timedelta(seconds=2.5)
            try:
                dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
            except dist.DistNetworkError:
                x += 0
        """,
        by=1,
    ),
    program(
        "a sender comes before the limit of the group of a receiver from any",
        only(0, 1.0, 0.0),
        """
        import threading
        from datetime import timedelta
        pair, x = dist.new_group([0, 1], timeout=timedelta(seconds=50)), torch.zeros(1)
        if rank == 1:
            arguments = {"dst": 0, "group": pair}
            threading.Timer(3.5, dist.send, (torch.ones(1),), arguments).start()
        if rank == 0:
            dist.recv(x, group=pair)
        x.item()
        """,
    ),
    program(
        "a rank asks again and again whether its all_reduce has finished",
        total,
        """
        import time
        x = torch.tensor([rank + 1.0])
        if rank == 1:
            time.sleep(2.5)
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            time.sleep(0.05)
        work.wait()
        x.item()
        """,
    ),
    late(
        "an alarm of the rank ends a sleep that has no end, the others wait",
        """
        import signal, threading
        class Enough(Exception):
            pass
        def stop(signum, frame):
            raise Enough
        before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(2)
        try:
            threading.Event().wait()
        except Enough:
            signal.signal(signal.SIGALRM, before)
        """,
    ),
]

PROGRAMS = on_four(LIMITS)
