"""Wrong and right answers to exercise 04-3."""

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
    "adds": (
        """
def all_gather_step(chunks, step):
    mine = chunks[(rank - step) % n]
    incoming = torch.empty_like(mine)
    exchange(chunks[(rank + 1 - step) % n], incoming)
    mine += incoming
""",
        "You add what comes in",
    ),
    "begins with an unfinished chunk": (
        """
def all_gather_step(chunks, step):
    exchange(chunks[(rank - step) % n], chunks[(rank - step - 1) % n])
""",
        "In step 0 you send chunk rank",
    ),
    "its own chunk every time": (
        """
def all_gather_step(chunks, step):
    exchange(chunks[right], chunks[rank])
""",
        "You send your own finished chunk in every step",
    ),
    "counts up": (
        """
def all_gather_step(chunks, step):
    exchange(chunks[(rank + 1 + step) % n], chunks[(rank + step) % n])
""",
        "You count the chunks up",
    ),
    "a new tensor in the list": (
        """
def all_gather_step(chunks, step):
    incoming = torch.empty_like(chunks[rank])
    exchange(chunks[(rank + 1 - step) % n], incoming)
    chunks[(rank - step) % n] = incoming
""",
        "Your tensor is as it was before",
    ),
    "sends before it receives": (
        """
def all_gather_step(chunks, step):
    dist.send(chunks[(rank + 1 - step) % n], right)
    dist.recv(chunks[(rank - step) % n], left)
""",
        "Every rank sends before it receives",
    ),
    "one place off": (
        """
def all_gather_step(chunks, step):
    exchange(chunks[(rank + 1 - step) % n], chunks[(rank - step - 1) % n])
""",
        "Some chunks are still unfinished",
    ),
    "calls the collective": (
        """
def all_gather_step(chunks, step):
    if step == 0:
        mine = chunks[right].clone()
        pieces = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(pieces, mine)
        for r in range(n):
            chunks[(r + 1) % n].copy_(pieces[r])
""",
        "forbidden: all_gather",
    ),
}

ANOTHER = """
def all_gather_step(chunks, step):
    number = rank - step
    room = torch.empty_like(chunks[number])
    sending = dist.isend(chunks[(number + 1) % n], right)
    dist.recv(room, left)
    sending.wait()
    chunks[number].copy_(room)
"""
