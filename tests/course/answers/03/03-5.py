_GATHER = """
def largest_of_all(x, k):
    mine = x.topk(k).values
    everyone = torch.empty(world_size * k, device=device)
    dist.all_gather_into_tensor(everyone, mine)
"""
WRONG = {
    "talks to nobody": (
        "def largest_of_all(x, k):\n    return x.topk(k).values\n",
        "Those are the largest numbers of the rank itself",
    ),
    "returns what it brought": (
        _GATHER + "    return mine\n",
        "Those are the largest numbers of the rank itself",
    ),
    "brings one number": (
        "def largest_of_all(x, k):\n    everyone = torch.empty(world_size, device=device)\n"
        "    dist.all_gather_into_tensor(everyone, x.max().view(1))\n"
        "    return everyone.topk(k).values\n",
        "Each rank brings only its largest number",
    ),
    "forgets to choose again": (
        _GATHER + "    return everyone\n",
        "That is everything that was gathered",
    ),
    "compares place by place": (
        "def largest_of_all(x, k):\n    mine = x.topk(k).values\n"
        "    dist.all_reduce(mine, op=dist.ReduceOp.MAX)\n    return mine\n",
        "Those are the largest of each place",
    ),
    "brings everything": (
        "def largest_of_all(x, k):\n"
        "    everyone = torch.empty(world_size * len(x), device=device)\n"
        "    dist.all_gather_into_tensor(everyone, x)\n    return everyone.topk(k).values\n",
        "The numbers are right, but every rank brings all that it has",
    ),
    "lets objects do it": (
        "def largest_of_all(x, k):\n    lists = [None] * world_size\n"
        "    dist.all_gather_object(lists, x.topk(k).values.tolist())\n"
        "    return torch.tensor(sum(lists, [])).topk(k).values\n",
        "forbidden: all_gather_object",
    ),
}
ANOTHER = """
def largest_of_all(x, k):
    mine = x.sort(descending=True).values[:k].contiguous()
    lists = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(lists, mine)
    return torch.cat(lists).sort(descending=True).values[:k]
"""
