"""Start a stock cluster, form the group in ``%%px`` cells, then run more. Argument: ranks."""

import sys

import ipyparallel as ipp
from ipyparallel.client.magics import ParallelMagics
from IPython.core.interactiveshell import InteractiveShell
from protocol import answer, free_port, serve

JOIN = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
x = torch.ones(1)
dist.all_reduce(x)
moment = time.time()
"""
SKIP = "if rank != 1:\n    dist.all_reduce(x)"

if __name__ == "__main__":
    ranks = int(sys.argv[1])
    cluster = ipp.Cluster(n=ranks)
    client = cluster.start_and_connect_sync()
    everyone = client[:]
    everyone.block = True
    shell = InteractiveShell.instance()
    shell.register_magics(ParallelMagics(shell, everyone))
    everyone.scatter("rank", range(ranks), flatten=True)
    everyone["world_size"] = ranks
    everyone["address"] = f"tcp://127.0.0.1:{free_port()}"
    shell.run_cell_magic("px", "", JOIN)
    total, moment = client[0]["x"].item(), client[0]["moment"]
    assert total == ranks, total
    answer(moment)
    serve(
        lambda: shell.run_cell_magic("px", "", "pass"), lambda: shell.run_cell_magic("px", "", SKIP)
    )
    cluster.stop_cluster_sync()
