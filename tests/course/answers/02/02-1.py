"""Answers to exercise 02-1 as learners write them."""

WRONG = {
    "passes on its own tensor": (
        """
def running_sum(x):
    total = x.clone()
    if rank > 0:
        before = torch.empty_like(x)
        dist.recv(before, rank - 1)
        total += before
    if rank < world_size - 1:
        dist.send(x, rank + 1)
    return total
""",
        "You pass on your own x",
    ),
    "never adds": (
        """
def running_sum(x):
    total = x.clone()
    if rank > 0:
        dist.recv(total, rank - 1)
    if rank < world_size - 1:
        dist.send(total, rank + 1)
    return total
""",
        "Rank 0's tensor goes down the chain unchanged",
    ),
    "adds for the next rank, not for itself": (
        """
def running_sum(x):
    total = torch.zeros_like(x)
    if rank > 0:
        dist.recv(total, rank - 1)
    if rank < world_size - 1:
        dist.send(total + x, rank + 1)
    return total if rank > 0 else x
""",
        "Your own x is missing",
    ),
    "returns what it brought": (
        """
def running_sum(x):
    total = x.clone()
    if rank > 0:
        dist.recv(total, rank - 1)
        total += x
    if rank < world_size - 1:
        dist.send(total, rank + 1)
    return x
""",
        "You return your own x",
    ),
    "lets the last rank send too": (
        """
def running_sum(x):
    total = x.clone()
    if rank > 0:
        before = torch.empty_like(x)
        dist.recv(before, rank - 1)
        total += before
    dist.send(total, rank + 1)
    return total
""",
        "The last rank sends too",
    ),
    "closes the chain to a ring": (
        """
def running_sum(x):
    before = torch.zeros_like(x)
    dist.recv(before, (rank - 1) % world_size)
    dist.send(before + x, (rank + 1) % world_size)
    return before + x
""",
        "Rank 0 has nobody before it",
    ),
    "asks everybody": (
        """
def running_sum(x):
    everyone = [torch.empty_like(x) for _ in range(world_size)]
    dist.all_gather(everyone, x)
    return sum(everyone[: rank + 1])
""",
        "forbidden: all_gather",
    ),
    "sends its tensor to all that come later": (
        """
def running_sum(x):
    total = x.clone()
    other = torch.empty_like(x)
    for source in range(rank):
        dist.recv(other, source)
        total += other
    for target in range(rank + 1, world_size):
        dist.send(x, target)
    return total
""",
        "goal: messages sent",
    ),
}

ANOTHER = """
def running_sum(x):
    sums = torch.zeros_like(x)
    works = []
    if rank != 0:
        dist.irecv(sums, src=rank - 1).wait()
    sums = sums + x
    if rank + 1 != world_size:
        works.append(dist.isend(sums, dst=rank + 1))
    for work in works:
        work.wait()
    return sums
"""
