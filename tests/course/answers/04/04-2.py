"""Wrong and right answers to exercise 04-2."""

SETUP = """
n = world_size
right, left = (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, incoming):
    receive = dist.P2POp(dist.irecv, incoming, left)
    send = dist.P2POp(dist.isend, outgoing, right)
    for work in dist.batch_isend_irecv([receive, send]):
        work.wait()
"""

WRONG = {
    "replaces instead of adding": (
        """
def reduce_scatter_step(chunks, step, room):
    exchange(chunks[(rank - step) % n], chunks[(rank - step - 1) % n])
""",
        "What comes in replaces your chunk",
    ),
    "the same chunk every time": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[left]
    incoming = room[: len(mine)]
    exchange(chunks[rank], incoming)
    mine += incoming
""",
        "You send the same chunk in every step",
    ),
    "adds to what it sends": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank - step) % n]
    incoming = room[: len(mine)]
    exchange(mine, incoming)
    mine += incoming
""",
        "You add to the chunk that you send",
    ),
    "counts up": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank + step - 1) % n]
    incoming = room[: len(mine)]
    exchange(chunks[(rank + step) % n], incoming)
    mine += incoming
""",
        "You count the chunks up",
    ),
    "a new tensor in the list": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank - step - 1) % n]
    incoming = room[: len(mine)]
    exchange(chunks[(rank - step) % n], incoming)
    chunks[(rank - step - 1) % n] = mine + incoming
""",
        "Your tensor is as it was before",
    ),
    "the whole room": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank - step - 1) % n]
    exchange(chunks[(rank - step) % n], room)
    mine += room
""",
        "You receive into the whole room",
    ),
    "sends before it receives": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank - step - 1) % n]
    incoming = room[: len(mine)]
    dist.send(chunks[(rank - step) % n], right)
    dist.recv(incoming, left)
    mine += incoming
""",
        "Every rank sends before it receives",
    ),
    "calls the collective": (
        """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank + 1) % n]
    if step == 0:
        for i in range(n):
            dist.reduce(chunks[i], (i - 1) % n)
""",
        "forbidden: reduce",
    ),
}

ANOTHER = """
def reduce_scatter_step(chunks, step, room):
    number = rank - step
    incoming = room[: chunks[number - 1].numel()]
    sending = dist.isend(chunks[number], right)
    receiving = dist.irecv(incoming, left)
    receiving.wait()
    sending.wait()
    chunks[number - 1].add_(incoming)
"""
