"""Wrong and right answers to exercise 13-1."""

SETUP = """
from torch.distributed import rpc
"""

WRONG = {
    "one after the other": (
        """
def ask_all(function):
    return [rpc.rpc_sync(f"rank{r}", function) for r in range(world_size)]
""",
        "One call begins when the one before it has ended",
    ),
    "waits at once": (
        """
def ask_all(function):
    return [rpc.rpc_async(f"rank{r}", function).wait() for r in range(world_size)]
""",
        "One call begins when the one before it has ended",
    ),
    "returns futures": (
        """
def ask_all(function):
    return [rpc.rpc_async(f"rank{r}", function) for r in range(world_size)]
""",
        "Those are futures",
    ),
    "only the others": (
        """
def ask_all(function):
    futures = [rpc.rpc_async(f"rank{r}", function) for r in range(1, world_size)]
    return [future.wait() for future in futures]
""",
        "One rank is missing",
    ),
    "a wrong name": (
        """
def ask_all(function):
    futures = [rpc.rpc_async(f"worker{r}", function) for r in range(world_size)]
    return [future.wait() for future in futures]
""",
        "RuntimeError",
    ),
}

ANOTHER = """
import torch.futures


def ask_all(function):
    return torch.futures.wait_all([rpc.rpc_async(r, function) for r in range(world_size)])
"""
