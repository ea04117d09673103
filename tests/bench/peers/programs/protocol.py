"""Answer the bench. Beside the standard library, only what a function itself needs is imported."""

import json
import signal
import socket
import sys
import time


def answer(value):
    """Write an answer on a line of its own."""
    print("BENCH", json.dumps(value), flush=True)


def free_port():
    """Return a port that is free on this machine now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def serve(call, skip, kernel=None):
    """Do what stdin says, line by line, until it ends.

    ``calls 50 20``: call ``call`` 50 times, or for 20 seconds, and answer with each call's seconds.
    ``skip``: answer with the moment, then call ``skip``; what it raises ends the program.
    ``kernel``: answer with what ``kernel`` returns.
    """
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "calls":
            answer(time_calls(call, *map(int, numbers)))
        elif what == "skip":
            answer(time.time())
            skip()
        elif what == "kernel":
            answer(kernel())


def time_calls(call, count, limit):
    """Call ``count`` times, but at least once and no longer than ``limit`` seconds."""
    seconds, began = [], time.perf_counter()
    while not seconds or (len(seconds) < count and time.perf_counter() - began < limit):
        before = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - before)
    return seconds


def play(what):
    """Finish one all_reduce on a rank of a group that exists; rank 0 answers with the moment.

    Then ``what``: "start" ends; "idle" stays; "skip" leaves an all_reduce out on rank 1, which goes
    on with something else; "skip-end" does the same, and rank 1 ends.
    """
    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    moment = time.time()
    assert x.item() == dist.get_world_size(), x
    if dist.get_rank() == 0:
        answer(moment)
    if what == "idle":
        signal.pause()
    if what.startswith("skip"):
        dist.barrier()
        if dist.get_rank() == 0:
            answer(time.time())
        if dist.get_rank() != 1:
            dist.all_reduce(x)
        elif what == "skip":
            signal.pause()
    dist.destroy_process_group()
