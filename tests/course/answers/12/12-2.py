SETUP = "import os\n"

WRONG = {
    "text": (
        """
def who_am_i(environment):
    if "RANK" in environment:
        names = "RANK", "LOCAL_RANK", "WORLD_SIZE"
    elif "SLURM_PROCID" in environment:
        names = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"
    else:
        return 0, 0, 1
    return tuple(environment[name] for name in names)
""",
        "An environment holds text",
    ),
    "the local rank": (
        """
def who_am_i(environment):
    if "LOCAL_RANK" in environment:
        names = "LOCAL_RANK", "LOCAL_RANK", "WORLD_SIZE"
    elif "SLURM_PROCID" in environment:
        names = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"
    else:
        return 0, 0, 1
    return tuple(int(environment[name]) for name in names)
""",
        "LOCAL_RANK is the number on this node",
    ),
    "the local world": (
        """
def who_am_i(environment):
    if "RANK" in environment:
        names = "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
    elif "SLURM_PROCID" in environment:
        names = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"
    else:
        return 0, 0, 1
    return tuple(int(environment[name]) for name in names)
""",
        "LOCAL_WORLD_SIZE counts",
    ),
    "another order": (
        """
def who_am_i(environment):
    if "RANK" in environment:
        names = "LOCAL_RANK", "RANK", "WORLD_SIZE"
    elif "SLURM_PROCID" in environment:
        names = "SLURM_LOCALID", "SLURM_PROCID", "SLURM_NTASKS"
    else:
        return 0, 0, 1
    return tuple(int(environment[name]) for name in names)
""",
        "The order is",
    ),
    "Slurm first": (
        """
def who_am_i(environment):
    if "SLURM_PROCID" in environment:
        names = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"
    elif "RANK" in environment:
        names = "RANK", "LOCAL_RANK", "WORLD_SIZE"
    else:
        return 0, 0, 1
    return tuple(int(environment[name]) for name in names)
""",
        "Where srun has started torchrun",
    ),
    "Slurm always": (
        """
def who_am_i(environment):
    names = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"
    return tuple(int(environment[name]) for name in names)
""",
        "Under torchrun a name is missing",
    ),
    "torchrun always": (
        """
def who_am_i(environment):
    names = "RANK", "LOCAL_RANK", "WORLD_SIZE"
    return tuple(int(environment[name]) for name in names)
""",
        "srun alone sets no RANK",
    ),
    "torchrun or nothing": (
        """
def who_am_i(environment):
    rank, local = environment.get("RANK", 0), environment.get("LOCAL_RANK", 0)
    return int(rank), int(local), int(environment.get("WORLD_SIZE", 1))
""",
        "srun alone sets no RANK",
    ),
    "zero is false": (
        """
def who_am_i(environment):
    def number(name, otherwise):
        return int(environment.get(name, otherwise))

    rank = number("RANK", 0) or number("SLURM_PROCID", 0)
    local = number("LOCAL_RANK", 0) or number("SLURM_LOCALID", 0)
    return rank, local, number("WORLD_SIZE", 0) or number("SLURM_NTASKS", 1)
""",
        "Rank 0 is a rank",
    ),
    "never alone": (
        """
def who_am_i(environment):
    if "RANK" in environment:
        names = "RANK", "LOCAL_RANK", "WORLD_SIZE"
    else:
        names = "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"
    return tuple(int(environment[name]) for name in names)
""",
        "Without a launcher",
    ),
    "alone: None": (
        """
def who_am_i(environment):
    for names in ("RANK LOCAL_RANK WORLD_SIZE", "SLURM_PROCID SLURM_LOCALID SLURM_NTASKS"):
        if names.split()[0] in environment:
            return [int(environment[name]) for name in names.split()]
""",
        "Without a launcher",
    ),
    "its own environment": (
        """
def who_am_i(environment):
    return int(os.environ.get("RANK", 0)), 0, 1
""",
        "The answer is the same everywhere",
    ),
    "prints": (
        """
def who_am_i(environment):
    print((5, 2, 7))
""",
        "nothing",
    ),
}

ANOTHER = """
def who_am_i(environment):
    def ask(*names, alone):
        found = (environment[name] for name in names if name in environment)
        return int(next(found, alone))

    return (
        ask("RANK", "SLURM_PROCID", alone=0),
        ask("LOCAL_RANK", "SLURM_LOCALID", alone=0),
        ask("WORLD_SIZE", "SLURM_NTASKS", alone=1),
    )
"""
