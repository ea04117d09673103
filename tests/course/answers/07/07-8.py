"""Wrong and right answers to exercise 07-8."""

WRONG = {
    "returns a tensor": (
        """
def bf16_hook(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    state["bytes"] += small.nbytes
    dist.all_reduce(small)
    return small.float()
""",
        "A hook returns a future",
    ),
    "returns nothing": (
        """
def bf16_hook(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    state["bytes"] += small.nbytes
    dist.all_reduce(small)
    bucket.buffer().copy_(small)
""",
        "A hook returns a future",
    ),
    "the work's own future": (
        """
def bf16_hook(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    state["bytes"] += small.nbytes
    return dist.all_reduce(small, async_op=True).get_future()
""",
        "The future has to hold one tensor of float32",
    ),
    "still 16 bits": (
        """
def bf16_hook(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    state["bytes"] += small.nbytes
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])
""",
        "The future has to hold one tensor of float32",
    ),
    "a name that is not there": (
        """
def bf16_hook(state, bucket):
    return compress(bucket.buffer())  # noqa: F821
""",
        "NameError",
    ),
    "sends nothing": (
        """
def bf16_hook(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer() / world_size)
    return future
""",
        "Every rank keeps its own gradient",
    ),
    "the sum": (
        """
def bf16_hook(state, bucket):
    small = bucket.buffer().bfloat16()
    state["bytes"] += small.nbytes
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].float())
""",
        "The gradient is the sum over the ranks",
    ),
    "divides twice": (
        """
def bf16_hook(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    state["bytes"] += small.nbytes
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].float() / world_size)
""",
        "The gradient is divided by world_size twice",
    ),
    "does not count": (
        """
def bf16_hook(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].float())
""",
        "The gradient is right. Now count",
    ),
    "torch's own": (
        """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook


def bf16_hook(state, bucket):
    return bf16_compress_hook(None, bucket)
""",
        "The gradient is right. Now count",
    ),
    "sends 32 bits": (
        """
def bf16_hook(state, bucket):
    large = bucket.buffer() / world_size
    state["bytes"] += large.numel() * 2
    future = dist.all_reduce(large, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].bfloat16().float())
""",
        "goal: bytes sent",
    ),
}

ANOTHER = """
def bf16_hook(state, bucket):
    gradient = bucket.buffer()
    small = gradient.to(torch.bfloat16).div_(dist.get_world_size())
    state["bytes"] += small.numel() * small.element_size()

    def back(future):
        return gradient.copy_(future.value()[0])

    return dist.all_reduce(small, async_op=True).get_future().then(back)
"""
