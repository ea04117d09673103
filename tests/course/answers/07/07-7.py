"""Wrong and right answers to exercise 07-7."""

WRONG = {
    "cuts parameters": (
        """
def deal_state(sizes, world_size):
    return [sum(sizes) / world_size] * world_size
""",
        "You cut parameters into pieces",
    ),
    "in the order of the model": (
        """
def deal_state(sizes, world_size):
    loads = [0] * world_size
    for size in sizes:
        loads[loads.index(min(loads))] += size
    return loads
""",
        "You deal in the order of the model",
    ),
    "in turns": (
        """
def deal_state(sizes, world_size):
    ordered = sorted(sizes, reverse=True)
    return [sum(ordered[r::world_size]) for r in range(world_size)]
""",
        "You deal them out like cards, in turns. Give",
    ),
    "in turns and in order": (
        """
def deal_state(sizes, world_size):
    return [sum(sizes[r::world_size]) for r in range(world_size)]
""",
        "You deal them out like cards, in turns, and",
    ),
    "from the smallest": (
        """
def deal_state(sizes, world_size):
    loads = [0] * world_size
    for size in sorted(sizes):
        loads[loads.index(min(loads))] += size
    return loads
""",
        "different",
    ),
}

ANOTHER = """
import heapq


def deal_state(sizes, world_size):
    loads = [(0, rank) for rank in range(world_size)]
    for size in sorted(sizes)[::-1]:
        load, rank = heapq.heappop(loads)
        heapq.heappush(loads, (load + size, rank))
    return [load for load, rank in sorted(loads, key=lambda pair: pair[1])]
"""
