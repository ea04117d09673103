"""Wrong and right answers to exercise 11-3."""

WRONG = {
    "more forwards than there are": (
        """
def one_f_one_b(stage, p, m):
    ahead = p - 1 - stage
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order + [f"B{k}" for k in range(m - ahead, m)]
""",
        "With few micro-batches some do not exist",
    ),
    "the last ones do not come back": (
        """
def one_f_one_b(stage, p, m):
    ahead = min(m, p - 1 - stage)
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order
""",
        "Parts are missing",
    ),
    "gpipe": (
        """
def one_f_one_b(stage, p, m):
    return [f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)]
""",
        "This is gpipe",
    ),
    "from the wrong end": (
        """
def one_f_one_b(stage, p, m):
    ahead = min(m, stage)
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order + [f"B{k}" for k in range(m - ahead, m)]
""",
        "You count from the wrong end",
    ),
    "one ahead too many": (
        """
def one_f_one_b(stage, p, m):
    ahead = min(m, p - stage)
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order + [f"B{k}" for k in range(m - ahead, m)]
""",
        "One forward too many",
    ),
    "takes turns from the beginning": (
        """
def one_f_one_b(stage, p, m):
    return [part for k in range(m) for part in (f"F{k}", f"B{k}")]
""",
        "Every stage takes turns from the beginning",
    ),
}

ANOTHER = """
def one_f_one_b(stage, p, m):
    order, forwards, backwards = [], 0, 0
    while backwards < m:
        if forwards < m and forwards - backwards < p - stage:
            order.append(f"F{forwards}")
            forwards += 1
        else:
            order.append(f"B{backwards}")
            backwards += 1
    return order
"""
