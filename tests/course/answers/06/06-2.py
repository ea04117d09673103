"""Wrong and right answers to exercise 06-2."""

WRONG = {
    "overwrites the vector": (
        """
def in_step(vector):
    mine = vector.clone()
    dist.broadcast(vector, src=0)
    agree = torch.tensor(int(mine.equal(vector)), device=device)
    dist.all_reduce(agree, op=dist.ReduceOp.MIN)
    return agree.item() == 1
""",
        "It changes vector",
    ),
    "each rank for itself": (
        """
def in_step(vector):
    first = vector.clone()
    dist.broadcast(first, src=0)
    return first.equal(vector)
""",
        "Each rank knows only whether it is equal to rank 0",
    ),
    "one is enough": (
        """
def in_step(vector):
    first = vector.clone()
    dist.broadcast(first, src=0)
    agree = torch.tensor(int(first.equal(vector)), device=device)
    dist.all_reduce(agree, op=dist.ReduceOp.MAX)
    return agree.item() == 1
""",
        "It is always True",
    ),
    "compares sums": (
        """
def in_step(vector):
    low = vector.sum()
    high = low.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return low.item() == high.item()
""",
        "It compares sums",
    ),
    "returns a tensor": (
        """
def in_step(vector):
    first = vector.clone()
    dist.broadcast(first, src=0)
    agree = torch.tensor(int(first.equal(vector)), device=device)
    dist.all_reduce(agree, op=dist.ReduceOp.MIN)
    return agree == 1
""",
        "A tensor is not True or False",
    ),
    "collects everything": (
        """
def in_step(vector):
    everyone = [torch.empty_like(vector) for _ in range(world_size)]
    dist.all_gather(everyone, vector)
    return all(other.equal(vector) for other in everyone)
""",
        "forbidden: all_gather",
    ),
    "a broadcast from every rank": (
        """
def in_step(vector):
    equal = True
    for source in range(world_size):
        other = vector.clone()
        dist.broadcast(other, src=source)
        equal = equal and other.equal(vector)
    return equal
""",
        "The result is right, but it takes more collectives",
    ),
}

ANOTHER = """
def in_step(vector):
    low, high = vector.clone(), vector.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return torch.equal(low, high)
"""
