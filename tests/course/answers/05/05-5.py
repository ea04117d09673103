"""Wrong and right answers to exercise 05-5."""

WRONG = {
    "always more GPUs": (
        """
def choose(fits, fast_enough, machines, one_line):
    if not fits:
        return "DDP with model parallel"
    return "DP" if machines == 1 and one_line else "DDP"
""",
        "The first case is fast enough on one GPU",
    ),
    "forgets the size": (
        """
def choose(fits, fast_enough, machines, one_line):
    if fast_enough:
        return "one GPU"
    return "DP" if machines == 1 and one_line else "DDP"
""",
        "The last model does not fit on a GPU",
    ),
    "forgets the machines": (
        """
def choose(fits, fast_enough, machines, one_line):
    if not fits:
        return "DDP with model parallel"
    if fast_enough:
        return "one GPU"
    return "DP" if one_line else "DDP"
""",
        "DP is one process, and a process lives on one machine",
    ),
    "one machine is DP": (
        """
def choose(fits, fast_enough, machines, one_line):
    if not fits:
        return "DDP with model parallel"
    if fast_enough:
        return "one GPU"
    return "DP" if machines == 1 else "DDP"
""",
        "The third case trains every night",
    ),
    "never DP": (
        """
def choose(fits, fast_enough, machines, one_line):
    if not fits:
        return "DDP with model parallel"
    return "one GPU" if fast_enough else "DDP"
""",
        "The second case is DP's own",
    ),
}

ANOTHER = """
def choose(fits, fast_enough, machines, one_line):
    if fast_enough and fits:
        return "one GPU"
    if fits and one_line and machines < 2:
        return "DP"
    return "DDP" + ("" if fits else " with model parallel")
"""
