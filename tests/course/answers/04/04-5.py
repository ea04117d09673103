"""Wrong and right answers to exercise 04-5."""

WRONG = {
    "one direction of the server": (
        """
def link_bytes(method, n, size):
    if method == "ring_all_reduce":
        return 2 * (n - 1) / n * size
    return (n - 1) * size
""",
        "You count one direction of the server only",
    ),
    "the server talks to itself": (
        """
def link_bytes(method, n, size):
    if method == "parameter_server":
        return 2 * n * size
    if method == "naive_ring":
        return (n - 1) * size
    return 2 * (n - 1) / n * size
""",
        "The server sends nothing to itself",
    ),
    "both directions of the ring": (
        """
def link_bytes(method, n, size):
    factors = {"parameter_server": 2 * (n - 1), "naive_ring": 2 * (n - 1)}
    return factors.get(method, 2 * (n - 1) / n) * size
""",
        "The naive ring sends while it receives",
    ),
    "n steps": (
        """
def link_bytes(method, n, size):
    factors = {"parameter_server": 2 * (n - 1), "naive_ring": n}
    return factors.get(method, 2 * (n - 1) / n) * size
""",
        "The naive ring takes n - 1 steps",
    ),
    "half of the ring": (
        """
def link_bytes(method, n, size):
    if method == "parameter_server":
        return 2 * (n - 1) * size
    if method == "naive_ring":
        return (n - 1) * size
    return (n - 1) / n * size
""",
        "You count half of the chunked ring",
    ),
    "whole tensors in the ring": (
        """
def link_bytes(method, n, size):
    if method == "naive_ring":
        return (n - 1) * size
    return 2 * (n - 1) * size
""",
        "The chunked ring sends 2(n - 1) messages",
    ),
    "forgets a method": (
        """
def link_bytes(method, n, size):
    if method == "parameter_server":
        return 2 * (n - 1) * size
    if method == "naive_ring":
        return (n - 1) * size
""",
        "It returns nothing for one of the methods",
    ),
}

ANOTHER = """
def link_bytes(method, n, size):
    steps = {"parameter_server": 2 * (n - 1), "naive_ring": n - 1, "ring_all_reduce": 2 * (n - 1)}
    message = size / n if method == "ring_all_reduce" else size
    return steps[method] * message
"""
