"""Wrong and right answers to exercise 14-2."""

WRONG = {
    "half of it": (
        """
def ring_time(n, size, alpha, beta):
    return (n - 1) * (alpha + size / n * beta)
""",
        "You count half of it",
    ),
    "whole tensors": (
        """
def ring_time(n, size, alpha, beta):
    return 2 * (n - 1) * (alpha + size * beta)
""",
        "You send the whole tensor",
    ),
    "α once": (
        """
def ring_time(n, size, alpha, beta):
    return alpha + 2 * (n - 1) / n * size * beta
""",
        "You pay α once",
    ),
    "n steps": (
        """
def ring_time(n, size, alpha, beta):
    return 2 * n * (alpha + size / n * beta)
""",
        "Two steps too many",
    ),
    "all ranks' messages": (
        """
def ring_time(n, size, alpha, beta):
    return n * 2 * (n - 1) * (alpha + size / n * beta)
""",
        "You add up what all ranks send",
    ),
    "returns nothing": (
        """
def ring_time(n, size, alpha, beta):
    2 * (n - 1) * (alpha + size / n * beta)
""",
        "different",
    ),
}

ANOTHER = """
def ring_time(n, size, alpha, beta):
    chunk = size / n
    return sum(alpha + beta * chunk for _ in range(2 * n - 2))
"""
