WRONG = {
    "calls under a condition": (
        "def how_many(flag):\n    count = torch.tensor(1, device=device)\n    if flag:\n"
        "        dist.all_reduce(count)\n    return count.item()\n",
        "Only the ranks with flag = True make the call",
    ),
    "counts itself": (
        "def how_many(flag):\n    return int(flag)\n",
        "Each rank counts itself alone",
    ),
    "returns the tensor": (
        "def how_many(flag):\n    count = torch.tensor(int(flag), device=device)\n"
        "    dist.all_reduce(count)\n    return count\n",
        "That is a tensor; return a number",
    ),
    "takes the largest": (
        "def how_many(flag):\n    count = torch.tensor(int(flag), device=device)\n"
        "    dist.all_reduce(count, op=dist.ReduceOp.MAX)\n    return count.item()\n",
        "That says whether anybody has True",
    ),
}
ANOTHER = """
def how_many(flag):
    flags = [torch.zeros(1, device=device) for _ in range(world_size)]
    dist.all_gather(flags, torch.tensor([float(flag)], device=device))
    return int(sum(flags).item())
"""
