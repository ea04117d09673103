"""Wrong and right answers to exercise 07-3."""

SETUP = """
import torch.nn.functional as F
"""

WRONG = {
    "the plain mean": (
        """
def fair_loss(scores, labels):
    return F.cross_entropy(scores, labels)
""",
        "This is the mean over a rank's own images",
    ),
    "not times world_size": (
        """
def fair_loss(scores, labels):
    count = torch.tensor(float(len(labels)), device=scores.device)
    dist.all_reduce(count)
    return F.cross_entropy(scores, labels, reduction="sum") / count
""",
        "The gradient is n times too small",
    ),
    "the sum": (
        """
def fair_loss(scores, labels):
    return F.cross_entropy(scores, labels, reduction="sum")
""",
        "It is the sum of the images' losses",
    ),
    "as if all had equally many": (
        """
def fair_loss(scores, labels):
    return F.cross_entropy(scores, labels, reduction="sum") / (world_size * len(labels))
""",
        "You divide by this rank's images times the ranks",
    ),
    "the loss is reduced": (
        """
def fair_loss(scores, labels):
    loss = F.cross_entropy(scores, labels)
    everywhere = loss.detach().clone()
    dist.all_reduce(everywhere)
    return loss
""",
        "This is the mean over a rank's own images",
    ),
    "gathers objects": (
        """
def fair_loss(scores, labels):
    counts = [None] * world_size
    dist.all_gather_object(counts, len(labels))
    return F.cross_entropy(scores, labels, reduction="sum") * world_size / sum(counts)
""",
        "goal: collectives",
    ),
}

ANOTHER = """
def fair_loss(scores, labels):
    images = torch.tensor([len(labels)], device=scores.device)
    dist.all_reduce(images)
    share = len(labels) / images.item()
    return F.cross_entropy(scores, labels) * share * world_size
"""
