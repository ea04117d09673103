"""Wrong and right answers to exercise 06-1."""

WRONG = {
    "rounds down": (
        """
def my_batch_size(whole):
    return whole // world_size
""",
        "Every rank takes the same, rounded down",
    ),
    "rounds up": (
        """
def my_batch_size(whole):
    return -(-whole // world_size)
""",
        "Every rank takes the same, rounded up",
    ),
    "all of the rest to the last": (
        """
def my_batch_size(whole):
    size = whole // world_size
    return size if rank < world_size - 1 else whole - size * (world_size - 1)
""",
        "One rank takes all of the remainder",
    ),
    "all of the rest to the first": (
        """
def my_batch_size(whole):
    return whole // world_size + (whole % world_size if rank == 0 else 0)
""",
        "One rank takes all of the remainder",
    ),
    "one rank too many": (
        """
def my_batch_size(whole):
    return whole // world_size + (rank <= whole % world_size)
""",
        "One rank too many",
    ),
    "from the end": (
        """
def my_batch_size(whole):
    return whole // world_size + (rank >= world_size - whole % world_size)
""",
        "The last ranks take the ones more",
    ),
    "a fraction": (
        """
def my_batch_size(whole):
    return whole / world_size
""",
        "A part of an image",
    ),
    "prints it": (
        """
def my_batch_size(whole):
    print(whole // world_size + (rank < whole % world_size))
""",
        "different",
    ),
}

ANOTHER = """
def my_batch_size(whole):
    return len(torch.arange(whole).tensor_split(world_size)[rank])
"""
