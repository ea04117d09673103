WRONG = {
    "the size of the node itself": (
        """
def rank_of(node_rank, local_rank, sizes):
    return node_rank * sizes[node_rank] + local_rank
""",
        "node_rank times the size of the node itself",
    ),
    "the size of the first node": (
        """
def rank_of(node_rank, local_rank, sizes):
    return node_rank * sizes[0] + local_rank
""",
        "node_rank times the size of the first node",
    ),
    "the local rank": (
        """
def rank_of(node_rank, local_rank, sizes):
    return local_rank
""",
        "That is the local rank",
    ),
    "the number of nodes": (
        """
def rank_of(node_rank, local_rank, sizes):
    return node_rank * len(sizes) + local_rank
""",
        "len(sizes) is the number of nodes",
    ),
    "the node before": (
        """
def rank_of(node_rank, local_rank, sizes):
    if node_rank == 0:
        return local_rank
    return sizes[node_rank - 1] + local_rank
""",
        "You count only the node just before",
    ),
    "itself too": (
        """
def rank_of(node_rank, local_rank, sizes):
    return sum(sizes[: node_rank + 1]) + local_rank
""",
        "You count the node itself",
    ),
    "from one": (
        """
def rank_of(node_rank, local_rank, sizes):
    return sum(sizes[:node_rank]) + local_rank + 1
""",
        "All ranks are one too high",
    ),
    "prints": (
        """
def rank_of(node_rank, local_rank, sizes):
    print(sum(sizes[:node_rank]) + local_rank)
""",
        "nothing",
    ),
}

ANOTHER = """
def rank_of(node_rank, local_rank, sizes):
    ranks = [(node, local) for node, size in enumerate(sizes) for local in range(size)]
    return ranks.index((node_rank, local_rank))
"""
