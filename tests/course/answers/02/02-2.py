"""Answers to exercise 02-2 as learners write them."""

WRONG = {
    "waits for nothing": (
        """
def exchange(x, peer):
    received = torch.zeros_like(x)
    dist.isend(x, peer)
    dist.irecv(received, peer)
    return received
""",
        "The result was read before it had arrived",
    ),
    "waits for the receive only": (
        """
def exchange(x, peer):
    received = torch.zeros_like(x)
    sending = dist.isend(x, peer)
    receiving = dist.irecv(received, peer)
    receiving.wait()
    keep.append(sending)
    return received
""",
        "x was overwritten (by -1)",
    ),
    "waits for the send at once": (
        """
def exchange(x, peer):
    received = torch.zeros_like(x)
    dist.isend(x, peer).wait()
    dist.irecv(received, peer).wait()
    return received
""",
        "You wait for the send before you post the receive",
    ),
    "receives into x": (
        """
def exchange(x, peer):
    works = [dist.isend(x, peer), dist.irecv(x, peer)]
    for work in works:
        work.wait()
    return x.clone()
""",
        "A rank got back its own numbers",
    ),
    "takes turns with blocking calls": (
        """
def exchange(x, peer):
    received = torch.zeros_like(x)
    if rank < peer:
        dist.send(x, peer)
        dist.recv(received, peer)
    else:
        dist.recv(received, peer)
        dist.send(x, peer)
    return received
""",
        "forbidden: recv",
    ),
}

ANOTHER = """
def exchange(x, peer):
    received = torch.empty_like(x)
    receiving = dist.irecv(received, src=peer)
    sending = dist.isend(x, dst=peer)
    sending.wait()
    receiving.wait()
    return received
"""

SETUP = "keep = []"
