"""Answers to exercise 02-4 as learners write them."""

WRONG = {
    "keeps the order of arrival": (
        """
def collect(x):
    if rank > 0:
        dist.send(x, 0)
        return None
    rows = [x]
    for _ in range(world_size - 1):
        row = torch.empty_like(x)
        dist.recv(row)
        rows.append(row)
    return torch.stack(rows)
""",
        "The rows are in the order in which they arrived",
    ),
    "receives into one tensor": (
        """
def collect(x):
    if rank > 0:
        dist.send(x, 0)
        return None
    rows, row = [x], torch.empty_like(x)
    for source in range(1, world_size):
        dist.recv(row, source)
        rows.append(row)
    return torch.stack(rows)
""",
        "Several rows are the same",
    ),
    "lets rank 0 send too": (
        """
def collect(x):
    dist.send(x, 0)
    if rank == 0:
        rows = torch.empty(world_size, *x.shape, device=x.device)
        for source in range(world_size):
            dist.recv(rows[source], source)
        return rows
""",
        "Rank 0 sends to itself",
    ),
    "forgets rank 0's own row": (
        """
def collect(x):
    if rank > 0:
        dist.send(x, 0)
        return None
    rows = torch.zeros(world_size, *x.shape, device=x.device)
    for source in range(1, world_size):
        dist.recv(rows[source], source)
    return rows
""",
        "Rank 0's own row is missing",
    ),
    "returns the rows on every rank": (
        """
def collect(x):
    rows = torch.zeros(world_size, *x.shape, device=x.device)
    rows[rank] = x
    if rank > 0:
        dist.send(x, 0)
    else:
        for source in range(1, world_size):
            dist.recv(rows[source], source)
    return rows
""",
        "Ranks other than 0 have to return None",
    ),
    "calls gather": (
        """
def collect(x):
    rows = [torch.empty_like(x) for _ in range(world_size)] if rank == 0 else None
    dist.gather(x, rows, dst=0)
    return torch.stack(rows) if rank == 0 else None
""",
        "forbidden: gather",
    ),
    "sends each number in a message of its own": (
        """
def collect(x):
    if rank > 0:
        for number in x:
            dist.send(number, 0)
        return None
    rows = torch.empty(world_size, *x.shape, device=x.device)
    rows[0] = x
    for source in range(1, world_size):
        for place in range(len(x)):
            dist.recv(rows[source, place], source)
    return rows
""",
        "goal: messages sent",
    ),
}

ANOTHER = """
def collect(x):
    if rank != 0:
        dist.send(x, dst=0)
        return None
    found = {0: x}
    for _ in range(world_size - 1):
        row = torch.empty_like(x)
        found[dist.recv(row)] = row
    return torch.stack([found[r] for r in range(world_size)])
"""
