"""Start labs. Arguments: number of ranks, and what to do.

``idle``: answer with the ranks' process ids and stay idle until stdin ends. For every line on
stdin, ``restart``: answer with the seconds of ``lab.restart()``; ``warm``: with a zygote there,
answer with the seconds from ``labkit.start`` to a finished all_reduce, and stop that lab.
"""

import json
import sys
import time

import labkit
from labkit.launch.zygote_client import READY, Zygote


def check():
    """Add one up over all ranks; return this rank's process id and the sum."""
    import os

    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    return os.getpid(), x.item()


def answer(value):
    print("BENCH", json.dumps(value), flush=True)


def idle():
    with labkit.start(ranks) as lab:
        answer([pid for pid, _ in lab.run(check)])
        sys.stdin.read()


def restart():
    with labkit.start(ranks) as lab:
        before = lab.run(check)
        for _ in sys.stdin:
            began = time.perf_counter()
            lab.restart()
            seconds = time.perf_counter() - began
            after = lab.run(check)
            assert not {pid for pid, _ in before} & {pid for pid, _ in after}, "the same processes"
            assert {total for _, total in after} == {ranks}, after
            before = after
            answer(seconds)


def warm():
    zygote = Zygote.start()
    assert zygote is not None, "this system cannot fork safely"
    while not (zygote.folder.path / READY).exists():
        time.sleep(0.05)
    labkit.start(1).stop()  # what this process itself imports for its first lab
    for _ in sys.stdin:
        began = time.perf_counter()
        with labkit.start(ranks) as lab:
            found = lab.run(check)
            seconds = time.perf_counter() - began
        assert {total for _, total in found} == {ranks}, found
        answer(seconds)
    zygote.close()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    {"idle": idle, "restart": restart, "warm": warm}[sys.argv[2]]()
