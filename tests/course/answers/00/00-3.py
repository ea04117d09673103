WRONG = {
    "uses what all_reduce returns": (
        "def average_of_all(x):\n    return dist.all_reduce(x) / world_size\n",
        "dist.all_reduce changes the tensor",
    ),
    "returns the sum": (
        "def average_of_all(x):\n    dist.all_reduce(x)\n    return x\n",
        "That is the sum",
    ),
    "divides twice": (
        "def average_of_all(x):\n    x = x / world_size\n    dist.all_reduce(x)\n"
        "    return x / world_size\n",
        "You divide twice",
    ),
    "talks to nobody": (
        "def average_of_all(x):\n    return x / world_size\n",
        "Each rank has its own numbers still",
    ),
    "one call for each number": (
        "def average_of_all(x):\n    for i in range(len(x)):\n        dist.all_reduce(x[i])\n"
        "    return x / world_size\n",
        "goal: collectives",
    ),
}
ANOTHER = """
def average_of_all(x):
    y = x / world_size
    dist.all_reduce(y)
    return y
"""
