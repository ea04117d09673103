"""Wrong and right answers to exercise 14-5."""

WRONG = {
    "the speed-up": (
        """
def efficiency(times, weak=False):
    return {n: times[1] / t for n, t in times.items()}
""",
        "This is the speed-up",
    ),
    "upside down": (
        """
def efficiency(times, weak=False):
    return {n: (1 if weak else n) * t / times[1] for n, t in times.items()}
""",
        "Upside down",
    ),
    "per cent": (
        """
def efficiency(times, weak=False):
    return {n: 100 * times[1] / (t if weak else n * t) for n, t in times.items()}
""",
        "In per cent?",
    ),
    "weak as strong": (
        """
def efficiency(times, weak=False):
    return {n: times[1] / (n * t) for n, t in times.items()}
""",
        "In weak scaling n ranks",
    ),
    "weak upside down": (
        """
def efficiency(times, weak=False):
    return {n: t / times[1] if weak else times[1] / (n * t) for n, t in times.items()}
""",
        "The weak half is upside down",
    ),
    "a list": (
        """
def efficiency(times, weak=False):
    return [times[1] / (t if weak else n * t) for n, t in times.items()]
""",
        "It returns no dict",
    ),
}

ANOTHER = """
def efficiency(times, weak=False):
    result = {}
    for n, seconds in times.items():
        ideal = times[1] if weak else times[1] / n
        result[n] = ideal / seconds
    return result
"""
