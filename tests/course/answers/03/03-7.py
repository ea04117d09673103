_SCORES = """
def follow_the_best(x, score, node):
    scores = torch.empty(dist.get_world_size(node), device=device)
    dist.all_gather_into_tensor(scores, torch.tensor([score], device=device), group=node)
"""
WRONG = {
    "counts in the group for src": (
        _SCORES + "    dist.broadcast(x, src=int(scores.argmax()), group=node)\n",
        "src= is a rank of the world",
    ),
    "asks the whole world": (
        "def follow_the_best(x, score, node):\n"
        "    scores = torch.empty(world_size, device=device)\n"
        "    dist.all_gather_into_tensor(scores, torch.tensor([score], device=device))\n"
        "    dist.broadcast(x, src=int(scores.argmax()))\n",
        "Every rank has what the best rank of the whole world had",
    ),
    "makes room for the world": (
        "def follow_the_best(x, score, node):\n"
        "    scores = torch.empty(world_size, device=device)\n"
        "    dist.all_gather_into_tensor(\n"
        "        scores, torch.tensor([score], device=device), group=node)\n"
        "    dist.broadcast(x, group_src=int(scores.argmax()), group=node)\n",
        "There is room for as many scores as the world has ranks",
    ),
    "leaves it at the scores": (
        _SCORES + "    return scores.argmax()\n",
        "Nobody has changed",
    ),
    "follows the first": (
        "def follow_the_best(x, score, node):\n    dist.broadcast(x, group_src=0, group=node)\n",
        "Every node follows its first rank",
    ),
    "lets objects do it": (
        "def follow_the_best(x, score, node):\n"
        "    pairs = [None] * dist.get_world_size(node)\n"
        "    dist.all_gather_object(pairs, (score, x), group=node)\n"
        "    x.copy_(max(pairs, key=lambda pair: pair[0])[1])\n",
        "forbidden: all_gather_object",
    ),
}
ANOTHER = """
def follow_the_best(x, score, node):
    best = torch.tensor([score], device=device)
    dist.all_reduce(best, op=dist.ReduceOp.MAX, group=node)
    if score < best:
        x.zero_()
    dist.all_reduce(x, group=node)
"""
