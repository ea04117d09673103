"""Wrong and right answers to exercise 11-2."""

WRONG = {
    "idle by work": (
        """
def micro_batches(p, share):
    m = 1
    while (p - 1) / m > share:
        m += 1
    return m
""",
        "You divide the idle slots by the m slots of work",
    ),
    "p idle slots": (
        """
def micro_batches(p, share):
    m = 1
    while p / (m + p) > share:
        m += 1
    return m
""",
        "You count p idle slots",
    ),
    "less than": (
        """
def micro_batches(p, share):
    m = 1
    while (p - 1) / (m + p - 1) >= share:
        m += 1
    return m
""",
        "A bubble that is exactly share is small enough",
    ),
    "rounded down": (
        """
def micro_batches(p, share):
    return max(1, int((p - 1) / share - (p - 1)))
""",
        "Rounded down",
    ),
}

ANOTHER = """
def micro_batches(p, share):
    import math

    return max(1, math.ceil((p - 1) / share - (p - 1)))
"""
