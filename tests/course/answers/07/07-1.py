"""Wrong and right answers to exercise 07-1."""

WRONG = {
    "blocks": (
        """
def deal(count, rank, world_size):
    each = -(-count // world_size)
    return [i % count for i in range(rank * each, (rank + 1) * each)]
""",
        "Each rank has a block of neighbours",
    ),
    "nothing is filled up": (
        """
def deal(count, rank, world_size):
    return list(range(rank, count, world_size))
""",
        "The ranks do not have equally many",
    ),
    "drops the rest": (
        """
def deal(count, rank, world_size):
    each = count // world_size
    return list(range(count))[: each * world_size][rank::world_size]
""",
        "Images are lost",
    ),
    "fills up with its own": (
        """
def deal(count, rank, world_size):
    cards = list(range(count))[rank::world_size]
    if len(cards) < -(-count // world_size):
        cards.append(cards[0])
    return cards
""",
        "You fill up with the rank's own images",
    ),
    "everything for everybody": (
        """
def deal(count, rank, world_size):
    return list(range(count))
""",
        "different",
    ),
    "prints it": (
        """
def deal(count, rank, world_size):
    each = -(-count // world_size)
    print([i % count for i in range(each * world_size)][rank::world_size])
""",
        "TypeError",
    ),
}

ANOTHER = """
def deal(count, rank, world_size):
    mine = []
    position = rank
    while len(mine) < (count + world_size - 1) // world_size:
        mine.append(position % count)
        position += world_size
    return mine
"""
