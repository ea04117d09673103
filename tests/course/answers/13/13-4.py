"""Wrong and right answers to exercise 13-4."""

SETUP = """
import math
"""

WRONG = {
    "not rounded": (
        """
def servers_needed(workers):
    return workers**2 / (2 * (workers - 1))
""",
        "There is no half server",
    ),
    "rounded down": (
        """
def servers_needed(workers):
    return workers**2 // (2 * (workers - 1))
""",
        "Rounded down",
    ),
    "one direction of the server": (
        """
import math


def servers_needed(workers):
    return math.ceil(workers / (4 * (workers - 1) / workers))
""",
        "You count one direction of the server only",
    ),
    "one direction of the ring": (
        """
import math


def servers_needed(workers):
    return math.ceil(2 * workers / (2 * (workers - 1) / workers))
""",
        "You count one direction of the ring only",
    ),
    "no answer for two": (
        """
def servers_needed(workers):
    if workers > 2:
        return -(-workers * workers // (2 * (workers - 1)))
""",
        "It raises an error or gives nothing",
    ),
}

ANOTHER = """
def servers_needed(workers):
    servers = 1
    while 2 * workers / servers > 4 * (workers - 1) / workers + 1e-9:
        servers += 1
    return servers
"""
