"""Wrong and right answers to exercise 04-4."""

SETUP = """
n = world_size
right, left = (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, incoming):
    receive = dist.P2POp(dist.irecv, incoming, left)
    send = dist.P2POp(dist.isend, outgoing, right)
    for work in dist.batch_isend_irecv([receive, send]):
        work.wait()


def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank - step - 1) % n]
    incoming = room[: len(mine)]
    exchange(chunks[(rank - step) % n], incoming)
    mine += incoming


def all_gather_step(chunks, step):
    exchange(chunks[(rank + 1 - step) % n], chunks[(rank - step) % n])
"""

WRONG = {
    "only the first half": (
        """
def ring_all_reduce(x, room=None):
    chunks = list(x.view(-1).tensor_split(n))
    room = torch.empty_like(chunks[0])
    for step in range(n - 1):
        reduce_scatter_step(chunks, step, room)
""",
        "One chunk on each rank is finished",
    ),
    "one loop for both": (
        """
def ring_all_reduce(x, room=None):
    chunks = list(x.view(-1).tensor_split(n))
    room = torch.empty_like(chunks[0])
    for step in range(n - 1):
        reduce_scatter_step(chunks, step, room)
        all_gather_step(chunks, step)
""",
        "There are partial sums left",
    ),
    "works on a copy": (
        """
def ring_all_reduce(x, room=None):
    x = x.clone()
    chunks = list(x.view(-1).tensor_split(n))
    room = torch.empty_like(chunks[0])
    for step in range(n - 1):
        reduce_scatter_step(chunks, step, room)
    for step in range(n - 1):
        all_gather_step(chunks, step)
    return x
""",
        "x is as it was before",
    ),
    "torch.chunk": (
        """
def ring_all_reduce(x, room=None):
    chunks = list(x.view(-1).chunk(n))
    room = torch.empty_like(chunks[0])
    for step in range(n - 1):
        reduce_scatter_step(chunks, step, room)
    for step in range(n - 1):
        all_gather_step(chunks, step)
""",
        "torch.chunk may make fewer chunks",
    ),
    "cuts rows": (
        """
def ring_all_reduce(x, room=None):
    chunks = list(x.tensor_split(n))
    room = torch.empty_like(chunks[0])
    for step in range(n - 1):
        reduce_scatter_step(chunks, step, room)
    for step in range(n - 1):
        all_gather_step(chunks, step)
""",
        "The sum is right, but you send too much",
    ),
    "whole tensors": (
        """
def ring_all_reduce(x, room=None):
    outgoing = x.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(x)
        exchange(outgoing, incoming)
        x += incoming
        outgoing = incoming
""",
        "goal: ",
    ),
    "calls the collective": (
        """
def ring_all_reduce(x, room=None):
    dist.all_reduce(x)
""",
        "forbidden: all_reduce",
    ),
}

ANOTHER = """
def ring_all_reduce(x, room=None):
    row = x.flatten()
    chunks = list(row.tensor_split(n))
    room = torch.empty_like(chunks[0])
    for step in range(2 * (n - 1)):
        if step < n - 1:
            reduce_scatter_step(chunks, step, room)
        else:
            all_gather_step(chunks, step - (n - 1))
    x.copy_(row.view_as(x))
"""
