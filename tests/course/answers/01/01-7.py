"""Wrong and right answers to exercise 01-7."""

WRONG = {
    "takes the place for a rank": (
        """
def from_last(x, group):
    dist.broadcast(x, src=dist.get_world_size(group) - 1, group=group)
""",
        "src= is a rank of the world",
    ),
    "takes the world's last place": (
        """
def from_last(x, group):
    dist.broadcast(x, group_src=dist.get_world_size() - 1, group=group)
""",
        "There is no such place in the group",
    ),
    "takes the first one": (
        """
def from_last(x, group):
    dist.broadcast(x, group_src=0, group=group)
""",
        "That is the first one's",
    ),
    "talks to everybody": (
        """
def from_last(x, group):
    dist.broadcast(x, src=dist.get_world_size() - 1)
""",
        "Everybody has the same",
    ),
    "works on a copy": (
        """
def from_last(x, group):
    x = x.clone()
    dist.broadcast(x, group_src=dist.get_world_size(group) - 1, group=group)
    return x
""",
        "x is as it was",
    ),
    "does it twice": (
        """
def from_last(x, group):
    for place in range(dist.get_world_size(group)):
        piece = x.clone()
        dist.broadcast(piece, group_src=place, group=group)
    x.copy_(piece)
""",
        "goal: collectives",
    ),
}

ANOTHER = """
def from_last(x, group):
    ranks = dist.get_process_group_ranks(group)
    dist.broadcast(x, src=ranks[-1], group=group)
"""
