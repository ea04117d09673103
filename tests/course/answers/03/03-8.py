WRONG = {
    "adds up first": (
        "def average_meanwhile(x, compute):\n    dist.all_reduce(x)\n"
        "    return x / world_size, compute()\n",
        "compute() runs after the sum",
    ),
    "waits at once": (
        "def average_meanwhile(x, compute):\n"
        "    dist.all_reduce(x, async_op=True).wait()\n    return x / world_size, compute()\n",
        "compute() runs after the sum",
    ),
    "computes first": (
        "def average_meanwhile(x, compute):\n    computed = compute()\n    dist.all_reduce(x)\n"
        "    return x / world_size, computed\n",
        "compute() runs before the sum has begun",
    ),
    "computes nothing": (
        "def average_meanwhile(x, compute):\n"
        "    work = dist.all_reduce(x, async_op=True)\n    work.wait()\n"
        "    return x / world_size, None\n",
        "compute is never called",
    ),
    "returns the sum": (
        "def average_meanwhile(x, compute):\n"
        "    work = dist.all_reduce(x, async_op=True)\n    computed = compute()\n    work.wait()\n"
        "    return x, computed\n",
        "That is the sum; divide it",
    ),
    "divides before it waits": (
        "def average_meanwhile(x, compute):\n"
        "    work = dist.all_reduce(x, async_op=True)\n    average = x / world_size\n"
        "    computed = compute()\n    work.wait()\n    return average, computed\n",
        "A rank took its average before the last one had come",
    ),
    "never waits": (
        "def average_meanwhile(x, compute):\n"
        "    dist.all_reduce(x, async_op=True)\n    computed = compute()\n"
        "    return x / world_size, computed\n",
        "A rank took its average before the last one had come",
    ),
}
ANOTHER = """
def average_meanwhile(x, compute):
    future = dist.all_reduce(x, async_op=True).get_future()
    average = future.then(lambda done: done.value()[0] / world_size)
    computed = compute()
    return average.wait(), computed
"""
