WRONG = {
    "goes past the last rank": (
        "def neighbour():\n    return rank + 1\n",
        "The last rank names a rank that does not exist",
    ),
    "goes down": (
        "def neighbour():\n    return (rank - 1) % world_size\n",
        "That is the neighbour on the other side",
    ),
    "goes down and past rank 0": (
        "def neighbour():\n    return rank - 1\n",
        "That is the neighbour on the other side",
    ),
    "takes the remainder first": (
        "def neighbour():\n    return rank % world_size\n",
        "That is the rank itself",
    ),
    "prints instead": (
        "def neighbour():\n    print((rank + 1) % world_size)\n",
        "nothing",
    ),
}
ANOTHER = """
def neighbour():
    return 0 if rank == world_size - 1 else rank + 1
"""
