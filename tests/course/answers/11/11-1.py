"""Wrong and right answers to exercise 11-1."""

WRONG = {
    "places instead of numbers": (
        """
def cut(costs, p):
    from itertools import combinations, pairwise

    places = combinations(range(1, len(costs)), p - 1)
    ways = [(0, *inner, len(costs)) for inner in places]
    return min(ways, key=lambda way: max(sum(costs[i:j]) for i, j in pairwise(way)))
""",
        "You return the places where you cut",
    ),
    "a number a layer": (
        """
def cut(costs, p):
    return [1] * len(costs)
""",
        "The list does not have p numbers",
    ),
    "an empty stage": (
        """
def cut(costs, p):
    return [len(costs)] + [0] * (p - 1)
""",
        "A stage gets no layer",
    ),
    "the rest is forgotten": (
        """
def cut(costs, p):
    return [len(costs) // p] * p
""",
        "The numbers do not add up",
    ),
    "equal numbers of layers": (
        """
def cut(costs, p):
    each, rest = divmod(len(costs), p)
    return [each + (stage < rest) for stage in range(p)]
""",
        "You deal out equal numbers of layers",
    ),
    "fills a stage to its share": (
        """
def cut(costs, p):
    counts, cost = [0], 0
    for layer in costs:
        if cost >= sum(costs) / p and len(counts) < p:
            counts.append(0)
            cost = 0
        counts[-1] += 1
        cost += layer
    return counts
""",
        "You fill a stage until it has its share",
    ),
}

ANOTHER = """
def cut(costs, p):
    if p == 1:
        return [len(costs)]
    best = None
    for k in range(1, len(costs) - p + 2):
        rest = cut(costs[k:], p - 1)
        loads, at = [sum(costs[:k])], k
        for number in rest:
            loads.append(sum(costs[at : at + number]))
            at += number
        if best is None or max(loads) < best[0]:
            best = max(loads), [k, *rest]
    return best[1]
"""
