"""Start a stock ipyparallel cluster, form the group by hand, finish one all_reduce on it.

Argument: number of ranks. Answers with the moment the all_reduce had finished on rank 0. The
group is formed as labkit forms it: through a store on the loopback interface.
"""

import json
import sys

import ipyparallel as ipp


def open_store():
    """Serve a store from this engine; return its port."""
    global store
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # noqa: F821
    return store.port


def join(rank, ranks, port):
    """Join the group and add one up over all ranks; return (sum, moment)."""
    import time

    global store
    if rank:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)  # noqa: F821
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)  # noqa: F821
    x = torch.ones(1)  # noqa: F821
    dist.all_reduce(x)  # noqa: F821
    return x.item(), time.time()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    cluster = ipp.Cluster(n=ranks)
    client = cluster.start_and_connect_sync()
    everyone = client[:]
    everyone.block = True
    everyone.execute("import torch, torch.distributed as dist")
    port = client[client.ids[0]].apply_sync(open_store)
    joining = [client[e].apply_async(join, r, ranks, port) for r, e in enumerate(client.ids)]
    total, moment = joining[0].get()
    assert total == ranks, total
    print("BENCH", json.dumps(moment), flush=True)
    for result in joining:
        result.get()
    cluster.stop_cluster_sync()
