WRONG = {
    "averages the means": (
        "def mean_of_all(samples):\n    mean = samples.mean()\n    dist.all_reduce(mean)\n"
        "    return mean / world_size\n",
        "That is the mean of the ranks' means",
    ),
    "divides by the number of ranks": (
        "def mean_of_all(samples):\n    total = samples.sum()\n    dist.all_reduce(total)\n"
        "    return total / world_size\n",
        "The sum is divided by the number of ranks",
    ),
    "talks to nobody": (
        "def mean_of_all(samples):\n    return samples.mean()\n",
        "Each rank averages its own samples only",
    ),
    "adds up tensors of different lengths": (
        "def mean_of_all(samples):\n    dist.all_reduce(samples)\n    return samples.mean()\n",
        "The ranks bring tensors of different lengths",
    ),
    "calls twice": (
        "def mean_of_all(samples):\n    total = samples.sum()\n"
        "    count = torch.tensor(len(samples), device=device)\n    dist.all_reduce(total)\n"
        "    dist.all_reduce(count)\n    return total / count\n",
        "The result is right, but it takes two collectives",
    ),
}
ANOTHER = """
def mean_of_all(samples):
    both = [torch.zeros(2, device=device) for _ in range(world_size)]
    mine = torch.tensor([samples.sum().item(), len(samples)], device=device)
    dist.all_gather(both, mine)
    total, count = sum(both)
    return (total / count).item()
"""
