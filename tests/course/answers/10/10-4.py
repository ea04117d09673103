SETUP = """
def block(rows, n, rank):
    size = -(-rows // n)
    return min(rank * size, rows), min((rank + 1) * size, rows)
"""

WRONG = {
    "rows of the whole tensor": (
        """
def pieces(rows, old, new, rank):
    first, stop = block(rows, new, rank)
    found = []
    for file in range(old):
        begin, end = block(rows, old, file)
        a, b = max(first, begin), min(stop, end)
        if a < b:
            found.append((file, a, b))
    return found
""",
        "first and stop count from the beginning",
    ),
    "lengths": (
        """
def pieces(rows, old, new, rank):
    first, stop = block(rows, new, rank)
    found = []
    for file in range(old):
        begin, end = block(rows, old, file)
        a, b = max(first, begin), min(stop, end)
        if a < b:
            found.append((file, a - begin, b - a))
    return found
""",
        "The third number is the end",
    ),
    "whole files": (
        """
def pieces(rows, old, new, rank):
    first, stop = block(rows, new, rank)
    found = []
    for file in range(old):
        begin, end = block(rows, old, file)
        if max(first, begin) < min(stop, end):
            found.append((file, 0, end - begin))
    return found
""",
        "You read whole files",
    ),
    "empty pieces": (
        """
def pieces(rows, old, new, rank):
    first, stop = block(rows, new, rank)
    found = []
    for file in range(old):
        begin, end = block(rows, old, file)
        a, b = max(first, begin), min(stop, end)
        found.append((file, a - begin, b - begin))
    return found
""",
        "There are empty pieces",
    ),
}

ANOTHER = """
def pieces(rows, old, new, rank):
    size = -(-rows // old)
    wanted = list(range(*block(rows, new, rank)))
    found = []
    for file in range(old):
        own = [row - file * size for row in wanted if row // size == file]
        if own:
            found.append((file, own[0], own[-1] + 1))
    return found
"""
