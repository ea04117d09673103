"""Answers to exercise 02-3 as learners write them."""

WRONG = {
    "sends first, on every rank": (
        """
def shift(x):
    received = torch.zeros_like(x)
    dist.send(x, (rank + 1) % world_size)
    dist.recv(received, (rank - 1) % world_size)
    return received
""",
        "Every rank sends first",
    ),
    "forgets that a ring closes": (
        """
def shift(x):
    received = torch.zeros_like(x)
    ops = [dist.P2POp(dist.irecv, received, (rank - 1) % world_size)]
    ops.append(dist.P2POp(dist.isend, x, rank + 1))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received
""",
        "There is no rank world_size",
    ),
    "goes the other way": (
        """
def shift(x):
    received = torch.zeros_like(x)
    ops = [dist.P2POp(dist.isend, x, (rank - 1) % world_size)]
    ops.append(dist.P2POp(dist.irecv, received, (rank + 1) % world_size))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received
""",
        "It went the other way round",
    ),
    "returns what it sent": (
        """
def shift(x):
    received = torch.zeros_like(x)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % world_size)]
    ops.append(dist.P2POp(dist.irecv, received, (rank - 1) % world_size))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return x
""",
        "You return your own x",
    ),
    "does not wait": (
        """
def shift(x):
    received = torch.zeros_like(x)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % world_size)]
    ops.append(dist.P2POp(dist.irecv, received, (rank - 1) % world_size))
    keep.append((x, dist.batch_isend_irecv(ops)))
    return received
""",
        "Some ranks return numbers that nobody has sent",
    ),
    "takes it from a collective": (
        """
def shift(x):
    everyone = [torch.empty_like(x) for _ in range(world_size)]
    dist.all_gather(everyone, x)
    return everyone[rank - 1]
""",
        "forbidden: all_gather",
    ),
}

ANOTHER = """
def shift(x):
    received = torch.zeros_like(x)
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    if rank == 0:
        dist.send(x, right)
        dist.recv(received, left)
    else:
        dist.recv(received, left)
        dist.send(x, right)
    return received
"""

SETUP = "keep = []"
