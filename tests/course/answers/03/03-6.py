WRONG = {
    "compares with rank 0": (
        "def all_agree(x):\n    other = x.clone()\n    dist.broadcast(other, src=0)\n"
        "    return x.equal(other)\n",
        "The ranks come to different verdicts",
    ),
    "compares with the mean": (
        "def all_agree(x):\n    mean = x.clone()\n    dist.all_reduce(mean)\n"
        "    return mean.equal(x * world_size)\n",
        "The ranks come to different verdicts",
    ),
    "asks for the largest only": (
        "def all_agree(x):\n    largest = x.clone()\n"
        "    dist.all_reduce(largest, op=dist.ReduceOp.MAX)\n    return x.equal(largest)\n",
        "The ranks come to different verdicts",
    ),
    "compares sums": (
        "def all_agree(x):\n    both = torch.stack([x.sum(), -x.sum()])\n"
        "    dist.all_reduce(both, op=dist.ReduceOp.MAX)\n    return bool(both[0] == -both[1])\n",
        "3, 7 and 7, 3 have the same sum",
    ),
    "looks at one place": (
        "def all_agree(x):\n    both = torch.stack([x[0], -x[0]])\n"
        "    dist.all_reduce(both, op=dist.ReduceOp.MAX)\n    return bool(both[0] == -both[1])\n",
        "It says yes where a rank holds something else",
    ),
    "calls twice": (
        "def all_agree(x):\n    largest, smallest = x.clone(), x.clone()\n"
        "    dist.all_reduce(largest, op=dist.ReduceOp.MAX)\n"
        "    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)\n    return largest.equal(smallest)\n",
        "The verdict is right, but it takes two collectives",
    ),
}
ANOTHER = """
def all_agree(x):
    everyone = torch.empty(world_size * len(x), dtype=x.dtype, device=device)
    dist.all_gather_into_tensor(everyone, x)
    return bool((everyone.view(world_size, -1) == everyone[: len(x)]).all())
"""
