"""Wrong and right answers to exercise 14-1."""

WRONG = {
    "all ranks are alike": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "Ranks with roles do not do the same work",
    ),
    "roles come last": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    if hosts > 1:
        return "torchrun"
    return "DDP" if alike else "RPC"
""",
        "Ranks with roles do not do the same work",
    ),
    "no limit at all": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "Even in parts, 112 GiB do not fit",
    ),
    "one GPU is the limit": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes:
        return "more GPUs"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "112 GiB fit on four GPUs of 40",
    ),
    "the GPUs of one host": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes * gpus:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "Two machines of two GPUs each",
    ),
    "elastic before room": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if must_survive:
        return "elastic"
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "Elastic restarts processes",
    ),
    "forgets the room": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "With DDP every rank keeps the whole state",
    ),
    "hosts before losses": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    if hosts > 1:
        return "torchrun"
    if must_survive:
        return "elastic"
    return "DDP"
""",
        "The risky one has to survive",
    ),
    "always several": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if must_survive:
        return "elastic"
    return "torchrun" if hosts > 1 else "DDP"
""",
        "One GPU is enough for the small one",
    ),
    "torchrun for all": (
        """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    if not alike:
        return "RPC"
    if state > gpu_bytes * gpus * hosts:
        return "more GPUs"
    if state > gpu_bytes:
        return "FSDP"
    if gpus * hosts == 1:
        return "one GPU"
    if must_survive:
        return "elastic"
    return "torchrun"
""",
        "On one machine the lab",
    ),
}

ANOTHER = """
def choose(state, gpu_bytes, gpus, hosts, must_survive=False, alike=True):
    total = gpus * hosts
    steps = [
        (not alike, "RPC"),
        (state > gpu_bytes * total, "more GPUs"),
        (state > gpu_bytes, "FSDP"),
        (total == 1, "one GPU"),
        (must_survive, "elastic"),
        (hosts > 1, "torchrun"),
    ]
    return next((step for applies, step in steps if applies), "DDP")
"""
