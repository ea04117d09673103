"""Wrong and right answers to exercise 14-3."""

WRONG = {
    "seconds": (
        """
import math


def crossover(n, alpha, beta):
    levels = math.log2(n)
    size = alpha * (n - 1 - levels) / (beta * (levels - (n - 1) / n))
    return 2 * levels * (alpha + size * beta)
""",
        "These are seconds",
    ),
    "one way": (
        """
import math


def crossover(n, alpha, beta):
    levels = math.log2(n)
    return alpha * (2 * (n - 1) - levels) / (beta * (levels - 2 * (n - 1) / n))
""",
        "Your tree only adds up",
    ),
    "whole tensors": (
        """
import math


def crossover(n, alpha, beta):
    levels = math.log2(n)
    return alpha * (n - 1 - levels) / (beta * (levels - (n - 1)))
""",
        "A size below zero",
    ),
    "natural logarithm": (
        """
import math


def crossover(n, alpha, beta):
    levels = math.log(n)
    return alpha * (n - 1 - levels) / (beta * (levels - (n - 1) / n))
""",
        "log is the natural logarithm",
    ),
    "β over α": (
        """
import math


def crossover(n, alpha, beta):
    levels = math.log2(n)
    return beta * (n - 1 - levels) / (alpha * (levels - (n - 1) / n))
""",
        "α and β have changed places",
    ),
    "upside down": (
        """
import math


def crossover(n, alpha, beta):
    levels = math.log2(n)
    return beta * (levels - (n - 1) / n) / (alpha * (n - 1 - levels))
""",
        "It is the other side",
    ),
}

ANOTHER = """
import math


def crossover(n, alpha, beta):
    def ring_minus_tree(size):
        ring = 2 * (n - 1) * (alpha + size / n * beta)
        return ring - 2 * math.log2(n) * (alpha + size * beta)

    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if ring_minus_tree(middle) > 0 else (low, middle)
    return low
"""
