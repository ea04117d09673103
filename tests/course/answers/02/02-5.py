"""Answers to exercise 02-5 as learners write them."""

WRONG = {
    "swaps the two": (
        """
def alpha_beta(n1, t1, n2, t2):
    beta = (t2 - t1) / (n2 - n1)
    return beta, t1 - beta * n1
""",
        "Both numbers are there, in the wrong order",
    ),
    "divides time by size": (
        """
def alpha_beta(n1, t1, n2, t2):
    beta = t2 / n2
    return t1 - beta * n1, beta
""",
        "Your β is the time of a byte if calls cost nothing",
    ),
    "takes the rate": (
        """
def alpha_beta(n1, t1, n2, t2):
    beta = (n2 - n1) / (t2 - t1)
    return t1 - n1 / beta, beta
""",
        "Your β is a rate",
    ),
    "takes the small message for α": (
        """
def alpha_beta(n1, t1, n2, t2):
    return t1, (t2 - t1) / (n2 - n1)
""",
        "Your α is the whole time of the small message",
    ),
}

ANOTHER = """
def alpha_beta(n1, t1, n2, t2):
    alpha = (t1 * n2 - t2 * n1) / (n2 - n1)
    return alpha, (t2 - alpha) / n2
"""
