_LENGTHS = """
def gather_uneven(x):
    mine = torch.tensor(len(x), device=device)
    lengths = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(lengths, mine)
    padded = torch.zeros(max(lengths), device=device)
    padded[: len(x)] = x
    pieces = [torch.empty_like(padded) for _ in range(world_size)]
    dist.all_gather(pieces, padded)
"""
WRONG = {
    "leaves the padding": (
        _LENGTHS + "    return torch.cat(pieces)\n",
        "The padding is still there",
    ),
    "cuts to its own length": (
        _LENGTHS + "    return torch.cat([piece[: len(x)] for piece in pieces])\n",
        "Each rank cuts all pieces to its own length",
    ),
    "makes room as for its own": (
        "def gather_uneven(x):\n    pieces = [torch.empty_like(x) for _ in range(world_size)]\n"
        "    dist.all_gather(pieces, x)\n    return torch.cat(pieces)\n",
        "An all_gather needs the same shape on every rank",
    ),
    "makes the right room, but brings its own shape": (
        "def gather_uneven(x):\n"
        "    pieces = [torch.empty(r + 1, device=device) for r in range(world_size)]\n"
        "    dist.all_gather(pieces, x)\n    return torch.cat(pieces)\n",
        "An all_gather needs the same shape on every rank",
    ),
    "returns what it brought": (
        _LENGTHS + "    return x\n",
        "Each rank has its own numbers only",
    ),
    "lets objects do it": (
        "def gather_uneven(x):\n    pieces = [None] * world_size\n"
        "    dist.all_gather_object(pieces, x)\n    return torch.cat(pieces)\n",
        "forbidden: all_gather_object",
    ),
}
ANOTHER = """
def gather_uneven(x):
    longest = torch.tensor(len(x), device=device)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    padded = torch.full((int(longest) + 1,), float("nan"), device=device)
    padded[: len(x)] = x
    everyone = torch.empty(world_size * len(padded), device=device)
    dist.all_gather_into_tensor(everyone, padded)
    return everyone[~everyone.isnan()]
"""
