"""Wrong and right answers to exercise 07-5."""

WRONG = {
    "from the first": (
        """
def fill(sizes, cap):
    buckets = []
    for size in sizes:
        if not buckets or buckets[-1] >= cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets
""",
        "You begin with the first parameter",
    ),
    "never above the cap": (
        """
def fill(sizes, cap):
    buckets = []
    for size in reversed(sizes):
        if not buckets or buckets[-1] + size > cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets
""",
        "Your buckets stay below the cap",
    ),
    "an empty one at the end": (
        """
def fill(sizes, cap):
    buckets = [0]
    for size in reversed(sizes):
        buckets[-1] += size
        if buckets[-1] >= cap:
            buckets.append(0)
    return buckets
""",
        "There is an empty bucket at the end",
    ),
    "the last is not closed": (
        """
def fill(sizes, cap):
    buckets, current = [], 0
    for size in reversed(sizes):
        current += size
        if current >= cap:
            buckets.append(current)
            current = 0
    return buckets
""",
        "Some gradients are in no bucket",
    ),
    "closes only above the cap": (
        """
def fill(sizes, cap):
    buckets = []
    for size in reversed(sizes):
        if not buckets or buckets[-1] > cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets
""",
        "different",
    ),
}

ANOTHER = """
def fill(sizes, cap):
    buckets, current = [], 0
    for size in sizes[::-1]:
        current += size
        if current >= cap:
            buckets.append(current)
            current = 0
    return buckets + [current] if current else buckets
"""
