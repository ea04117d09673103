WRONG = {
    "decides alone": (
        """
def next_scale(scale, good, overflow, interval):
    dist.barrier()
    if overflow:
        return scale / 2, 0
    if good + 1 == interval:
        return scale * 2, 0
    return scale, good + 1
""",
        "Each rank decides by its own overflow",
    ),
    "calls only after an overflow": (
        """
def next_scale(scale, good, overflow, interval):
    if overflow:
        dist.all_reduce(torch.ones(1, device=device))
        return scale / 2, 0
    if good + 1 == interval:
        return scale * 2, 0
    return scale, good + 1
""",
        "Only the ranks that overflow make the call",
    ),
    "never grows": (
        """
def next_scale(scale, good, overflow, interval):
    flag = torch.tensor(float(overflow), device=device)
    dist.all_reduce(flag)
    return (scale / 2, 0) if flag > 0 else (scale, good + 1)
""",
        "The scale never grows",
    ),
    "counts on over a skipped step": (
        """
def next_scale(scale, good, overflow, interval):
    flag = torch.tensor(float(overflow), device=device)
    dist.all_reduce(flag)
    if flag > 0:
        return scale / 2, good
    if good + 1 == interval:
        return scale * 2, 0
    return scale, good + 1
""",
        "The count of good steps goes on over a skipped one",
    ),
    "grows late": (
        """
def next_scale(scale, good, overflow, interval):
    flag = torch.tensor(float(overflow), device=device)
    dist.all_reduce(flag)
    if flag > 0:
        return scale / 2, 0
    if good == interval:
        return scale * 2, 0
    return scale, good + 1
""",
        "It grows one step too late",
    ),
    "never starts again": (
        """
def next_scale(scale, good, overflow, interval):
    flag = torch.tensor(float(overflow), device=device)
    dist.all_reduce(flag)
    if flag > 0:
        return scale / 2, 0
    good += 1
    return (scale * 2 if good >= interval else scale), good
""",
        "After the scale has grown, the count begins again",
    ),
    "returns the scale only": (
        """
def next_scale(scale, good, overflow, interval):
    flag = torch.tensor(float(overflow), device=device)
    dist.all_reduce(flag)
    return scale / 2 if flag > 0 else scale
""",
        "Return two things",
    ),
}

ANOTHER = """
def next_scale(scale, good, overflow, interval):
    flags = [torch.zeros(1, device=device) for _ in range(world_size)]
    dist.all_gather(flags, torch.full((1,), float(overflow), device=device))
    if any(flag.item() for flag in flags):
        return scale * 0.5, 0
    good = (good + 1) % interval
    return scale * (2 if good == 0 else 1), good
"""
