"""Wrong and right answers to exercise 14-4."""

SETUP = """
def ring(n, size, alpha, beta):
    return 2 * (n - 1) * (alpha + size / n * beta)
"""

WRONG = {
    "a flat ring": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return ring(hosts * per_host, size, *slow)
""",
        "This is one flat ring",
    ),
    "between hosts only": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return ring(hosts, size, *slow)
""",
        "You leave out what happens inside",
    ),
    "inside only": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return ring(per_host, size, *fast)
""",
        "You leave out what happens between",
    ),
    "fast and slow": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return ring(per_host, size, *slow) + ring(hosts, size, *fast)
""",
        "Fast and slow have changed places",
    ),
    "a cable each": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return ring(per_host, size, *fast) + ring(hosts, size / per_host, *slow)
""",
        "A rank sends size / per_host bytes",
    ),
    "one round": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return ring(per_host, size, *fast) / 2 + ring(hosts, size, *slow)
""",
        "Inside a host there are two rounds",
    ),
    "two all-reduces": (
        """
def hierarchical_time(hosts, per_host, size, fast, slow):
    return 2 * ring(per_host, size, *fast) + ring(hosts, size, *slow)
""",
        "You count a whole all-reduce",
    ),
}

ANOTHER = """
def hierarchical_time(hosts, per_host, size, fast, slow):
    total = 0
    for n, (alpha, beta) in ((per_host, fast), (hosts, slow)):
        total += 2 * (n - 1) * alpha + 2 * (n - 1) / n * size * beta
    return total
"""
