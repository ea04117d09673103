"""Run empty ``%%px`` cells in an IPython shell: two magics in turns.

Argument: number of ranks. For every line on stdin, two names and a number, run that many cells of
each. The names are "px" (labkit's, on a lab) and "pxelsewhere" (the stock magic on a stock cluster
beside it). The answer has two lists of seconds, and what a cell of each takes of the processors,
in seconds, in this process and in those of its side. The magics are called as a notebook calls
them.
"""

import json
import sys
import time
from pathlib import Path

import ipyparallel as ipp
import psutil
from ipyparallel.client.magics import ParallelMagics
from IPython.core.interactiveshell import InteractiveShell

import labkit

WARM_UP = 5


def register_stock(shell, client, engines, suffix):
    """Register the stock magics as ``%%px<suffix>``, blocking, on these engines."""
    view = client.direct_view(engines)
    view.block = True
    shell.register_magics(ParallelMagics(shell, view, suffix=suffix))


def descendants():
    """Return the processes that this one has started, and those have."""
    return set(psutil.Process().children(recursive=True))


def processor_time(processes):
    """Return how long processes have run on a processor, in seconds."""
    return sum(map(time_of, processes))


def time_of(process):
    """Return the time of one process: to the nanosecond where Linux counts so, as most cells take
    less than the hundredth of a second in which it counts elsewhere."""
    try:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError):
        used = process.cpu_times()
        return used.user + used.system


def take_turns(shell, sides, count):
    """Run ``count`` empty cells of each of two magics: A B, B A, …

    ``sides`` has the processes of each magic, by its name.
    """
    seconds = {name: [] for name in sides}
    here = dict.fromkeys(sides, 0.0)
    before = {name: processor_time(processes) for name, processes in sides.items()}
    for turn in range(count):
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            began, used = time.perf_counter(), time.process_time()
            shell.run_cell_magic(name, "", "pass")
            seconds[name].append(time.perf_counter() - began)
            here[name] += time.process_time() - used
    there = {name: processor_time(sides[name]) - before[name] for name in sides}
    return {
        "seconds": list(seconds.values()),
        "processors": [(here[name] + there[name]) / count for name in sides],
    }


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    shell = InteractiveShell.instance()
    cluster = ipp.Cluster(n=ranks)
    elsewhere = cluster.start_and_connect_sync()
    stock = descendants()
    with labkit.start(ranks):
        register_stock(shell, elsewhere, elsewhere.ids, "elsewhere")
        processes = {"px": descendants() - stock, "pxelsewhere": stock}
        for line in sys.stdin:
            *names, count = line.split()
            chosen = {name: processes[name] for name in names}
            take_turns(shell, chosen, WARM_UP)
            print("BENCH", json.dumps(take_turns(shell, chosen, int(count))), flush=True)
    cluster.stop_cluster_sync()
