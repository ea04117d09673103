"""Spawn processes and actors with Monarch, then call endpoints. Argument: number of ranks."""

import sys
import time

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.spmd import setup_torch_elastic_env
from protocol import answer, serve


class Member(Actor):
    """One rank of the group."""

    @endpoint
    def join(self):
        """Form the group, add one up over all ranks; return (sum, moment)."""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.x = torch.ones(1)
        dist.all_reduce(self.x)
        return self.x.item(), time.time()

    @endpoint
    def nothing(self):
        """Do nothing."""

    @endpoint
    def skip(self):
        """Leave an all_reduce out on rank 1."""
        import torch.distributed as dist

        if current_rank().rank != 1:
            dist.all_reduce(self.x)


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    processes = this_host().spawn_procs({"gpus": ranks})
    setup_torch_elastic_env(processes)
    everyone = processes.spawn("members", Member)
    total, moment = next(iter(everyone.join.call().get()))[1]
    assert total == ranks, total
    answer(moment)
    serve(lambda: everyone.nothing.call().get(), lambda: everyone.skip.call().get())
    processes.stop().get()
