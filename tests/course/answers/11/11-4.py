"""Wrong and right answers to exercise 11-4."""

WRONG = {
    "no sum": (
        """
def row_linear(x, w, bias):
    return x @ w.T + bias
""",
        "Each rank has a part of the sum",
    ),
    "the bias of every rank": (
        """
def row_linear(x, w, bias):
    out = x @ w.T + bias
    dist.all_reduce(out)
    return out
""",
        "The bias is in the result once for every rank",
    ),
    "no bias": (
        """
def row_linear(x, w, bias):
    out = x @ w.T
    dist.all_reduce(out)
    return out
""",
        "The bias is missing",
    ),
    "the mean": (
        """
def row_linear(x, w, bias):
    out = x @ w.T
    dist.all_reduce(out)
    return out / world_size + bias
""",
        "You average",
    ),
    "not transposed": (
        """
def row_linear(x, w, bias):
    out = x @ w
    dist.all_reduce(out)
    return out + bias
""",
        "w has a row for each output",
    ),
    "gathers inputs and weights": (
        """
def row_linear(x, w, bias):
    xs = [torch.empty_like(x) for _ in range(world_size)]
    ws = [torch.empty_like(w) for _ in range(world_size)]
    dist.all_gather(xs, x.contiguous())
    dist.all_gather(ws, w.contiguous())
    return torch.cat(xs, dim=1) @ torch.cat(ws, dim=1).T + bias
""",
        "forbidden: all_gather",
    ),
    "one collective a row": (
        """
def row_linear(x, w, bias):
    out = x @ w.T
    for row in out:
        dist.all_reduce(row)
    return out + bias
""",
        "goal: collectives",
    ),
}

ANOTHER = """
def row_linear(x, w, bias):
    out = torch.nn.functional.linear(x, w, bias if rank == 0 else None)
    dist.all_reduce(out, op=dist.ReduceOp.SUM)
    return out
"""
