"""Start Ray and one actor per rank, form the group, then call methods. Argument: ranks."""

import sys
import time

import ray
from protocol import answer, serve


@ray.remote(num_cpus=1)
class Member:
    """One rank of the group."""

    def address(self):
        """Return where the group can meet: this node, a free port."""
        import socket

        with socket.socket() as probe:
            probe.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"

    def join(self, rank, ranks, address):
        """Form the group, add one up over all ranks; return (sum, moment)."""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
        self.x = torch.ones(1)
        dist.all_reduce(self.x)
        return self.x.item(), time.time()

    def nothing(self):
        """Do nothing."""

    def skip(self):
        """Leave an all_reduce out on rank 1."""
        import torch.distributed as dist

        if dist.get_rank() != 1:
            dist.all_reduce(self.x)


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    ray.init(num_cpus=ranks)
    everyone = [Member.remote() for _ in range(ranks)]
    address = ray.get(everyone[0].address.remote())
    joined = ray.get([rank.join.remote(i, ranks, address) for i, rank in enumerate(everyone)])
    total, moment = joined[0]
    assert total == ranks, total
    answer(moment)
    serve(
        lambda: ray.get([rank.nothing.remote() for rank in everyone]),
        lambda: ray.get([rank.skip.remote() for rank in everyone]),
    )
    ray.shutdown()
