"""Wrong and right answers to exercise 01-1."""

WRONG = {
    "leaves the numbers text": (
        """
def join_arguments(environment):
    address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    return {
        "init_method": f"tcp://{address}:{port}",
        "rank": environment["RANK"],
        "world_size": environment["WORLD_SIZE"],
    }
""",
        "Environment variables are text.",
    ),
    "takes the local rank": (
        """
def join_arguments(environment):
    address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    return {
        "init_method": f"tcp://{address}:{port}",
        "rank": int(environment["LOCAL_RANK"]),
        "world_size": int(environment["WORLD_SIZE"]),
    }
""",
        "You read LOCAL_RANK",
    ),
    "takes the local world size": (
        """
def join_arguments(environment):
    address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    return {
        "init_method": f"tcp://{address}:{port}",
        "rank": int(environment["RANK"]),
        "world_size": int(environment["LOCAL_WORLD_SIZE"]),
    }
""",
        "The world size is that of one machine",
    ),
    "forgets the port": (
        """
def join_arguments(environment):
    return {
        "init_method": "tcp://" + environment["MASTER_ADDR"],
        "rank": int(environment["RANK"]),
        "world_size": int(environment["WORLD_SIZE"]),
    }
""",
        "The port is missing",
    ),
    "leaves out tcp://": (
        """
def join_arguments(environment):
    return {
        "init_method": environment["MASTER_ADDR"] + ":" + environment["MASTER_PORT"],
        "rank": int(environment["RANK"]),
        "world_size": int(environment["WORLD_SIZE"]),
    }
""",
        "init_method has to be an address",
    ),
    "asks for a variable that nobody sets": (
        """
def join_arguments(environment):
    return {"rank": int(environment["MASTER_RANK"])}
""",
        "KeyError",
    ),
}

ANOTHER = """
def join_arguments(environment):
    numbers = {name.lower(): int(environment[name]) for name in ("RANK", "WORLD_SIZE")}
    url = "tcp://{MASTER_ADDR}:{MASTER_PORT}".format(**environment)
    return dict(numbers, init_method=url)
"""
