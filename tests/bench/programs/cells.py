"""Run empty ``%%px`` cells in an IPython shell: two magics in turns.

Argument: number of ranks. For every line on stdin, two names and a number, run that many cells of
each and answer with two lists of seconds. The names are "px" (labkit's), "pxstock" (the stock
magic on the lab's own ranks) and "pxelsewhere" (the stock magic on a stock cluster beside it).
The magics are called as a notebook calls them.
"""

import json
import sys
import time

import ipyparallel as ipp
from ipyparallel.client.magics import ParallelMagics
from IPython.core.interactiveshell import InteractiveShell

import labkit

WARM_UP = 5


def register_stock(shell, client, engines, suffix):
    """Register the stock magics as ``%%px<suffix>``, blocking, on these engines."""
    view = client.direct_view(engines)
    view.block = True
    shell.register_magics(ParallelMagics(shell, view, suffix=suffix))


def take_turns(shell, names, count):
    """Run ``count`` empty cells of each of two magics: A B, B A, …; return the seconds of each."""
    times = {name: [] for name in names}
    for turn in range(count):
        for name in names if turn % 2 == 0 else names[::-1]:
            began = time.perf_counter()
            shell.run_cell_magic(name, "", "pass")
            times[name].append(time.perf_counter() - began)
    return [times[name] for name in names]


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    shell = InteractiveShell.instance()
    cluster = ipp.Cluster(n=ranks)
    elsewhere = cluster.start_and_connect_sync()
    with labkit.start(ranks) as lab:
        register_stock(shell, lab.client, lab.engine_ids, "stock")
        register_stock(shell, elsewhere, elsewhere.ids, "elsewhere")
        for line in sys.stdin:
            *names, count = line.split()
            take_turns(shell, names, WARM_UP)
            print("BENCH", json.dumps(take_turns(shell, names, int(count))), flush=True)
    cluster.stop_cluster_sync()
