"""Wrong and right answers to exercise 06-3."""

WRONG = {
    "the mean of means": (
        """
def average_weighted(net, count):
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world_size
""",
        "That is the mean of the ranks' means",
    ),
    "never divides": (
        """
def average_weighted(net, count):
    for p in net.parameters():
        p.grad *= count
        dist.all_reduce(p.grad)
""",
        "It adds up count times the gradient, and divides by nothing",
    ),
    "divides by the ranks": (
        """
def average_weighted(net, count):
    for p in net.parameters():
        p.grad *= count
        dist.all_reduce(p.grad)
        p.grad /= world_size
""",
        "The weighted sum is divided by the number of ranks",
    ),
    "divides by its own count": (
        """
def average_weighted(net, count):
    for p in net.parameters():
        p.grad *= count
        dist.all_reduce(p.grad)
        p.grad /= count
""",
        "Each rank divides by its own count",
    ),
    "weighs only": (
        """
def average_weighted(net, count):
    total = torch.tensor(count, device=device)
    dist.all_reduce(total)
    for p in net.parameters():
        p.grad *= count / total.item()
""",
        "Each rank has only weighed its own gradient",
    ),
    "not in place": (
        """
def average_weighted(net, count):
    total = torch.tensor(count, device=device)
    dist.all_reduce(total)
    for p in net.parameters():
        weighted = p.grad * count / total
        dist.all_reduce(weighted)
""",
        "The gradients are as they were",
    ),
    "counts again and again": (
        """
def average_weighted(net, count):
    for p in net.parameters():
        total = torch.tensor(count, device=device)
        dist.all_reduce(total)
        p.grad *= count / total.item()
        dist.all_reduce(p.grad)
""",
        "The result is right, but the counts are added up anew",
    ),
}

ANOTHER = """
def average_weighted(net, count):
    parameters = list(net.parameters())
    own = [p.grad.flatten() * count for p in parameters]
    flat = torch.cat([*own, own[0].new_tensor([count])])
    dist.all_reduce(flat)
    pieces = (flat[:-1] / flat[-1]).split([p.numel() for p in parameters])
    for p, piece in zip(parameters, pieces):
        p.grad = piece.view_as(p)
"""
