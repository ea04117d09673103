"""Wrong and right answers to exercise 04-1."""

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
    "adds one neighbour": (
        """
def naive_ring(x):
    incoming = torch.empty_like(x)
    exchange(x, incoming)
    return x + incoming
""",
        "Only one neighbour's number is in the sum",
    ),
    "sends its own every time": (
        """
def naive_ring(x):
    total = x.clone()
    incoming = torch.empty_like(x)
    for _ in range(n - 1):
        exchange(x, incoming)
        total += incoming
    return total
""",
        "You send your own x in every step",
    ),
    "passes on the total": (
        """
def naive_ring(x):
    total = x.clone()
    incoming = torch.empty_like(x)
    for _ in range(n - 1):
        exchange(total, incoming)
        total += incoming
    return total
""",
        "You pass on the sum so far",
    ),
    "one step too many": (
        """
def naive_ring(x):
    total, outgoing = x.clone(), x
    for _ in range(n):
        incoming = torch.empty_like(x)
        exchange(outgoing, incoming)
        total += incoming
        outgoing = incoming
    return total
""",
        "One step too many",
    ),
    "changes x": (
        """
def naive_ring(x):
    total, outgoing = x, x.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(x)
        exchange(outgoing, incoming)
        total += incoming
        outgoing = incoming
    return total
""",
        "It changes x",
    ),
    "begins with zero": (
        """
def naive_ring(x):
    total, outgoing = torch.zeros_like(x), x
    for _ in range(n - 1):
        incoming = torch.empty_like(x)
        exchange(outgoing, incoming)
        total += incoming
        outgoing = incoming
    return total
""",
        "Your own number is missing",
    ),
    "returns nothing": (
        """
def naive_ring(x):
    total, outgoing = x.clone(), x
    for _ in range(n - 1):
        incoming = torch.empty_like(x)
        exchange(outgoing, incoming)
        total += incoming
        outgoing = incoming
""",
        "It returns nothing",
    ),
    "sends before it receives": (
        """
def naive_ring(x):
    total, outgoing = x.clone(), x
    for _ in range(n - 1):
        incoming = torch.empty_like(x)
        dist.send(outgoing, right)
        dist.recv(incoming, left)
        total += incoming
        outgoing = incoming
    return total
""",
        "Every rank sends before it receives",
    ),
    "calls the collective": (
        """
def naive_ring(x):
    total = x.clone()
    dist.all_reduce(total)
    return total
""",
        "forbidden: all_reduce",
    ),
}

ANOTHER = """
def naive_ring(x):
    travelling, total = x.clone(), x.clone()
    for _ in range(n - 1):
        arrived = torch.empty_like(x)
        sending = dist.isend(travelling, right)
        dist.recv(arrived, left)
        sending.wait()
        travelling = arrived
        total = total + travelling
    return total
"""
