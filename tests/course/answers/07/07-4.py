"""Wrong and right answers to exercise 07-4."""

WRONG = {
    "meets after every batch": (
        """
def accumulate(net, loss_of, batches):
    for batch in batches:
        (loss_of(batch) / len(batches)).backward()
""",
        "The gradient is right, but the ranks meet after every batch",
    ),
    "the forward is outside": (
        """
def accumulate(net, loss_of, batches):
    *rest, last = batches
    for batch in rest:
        loss = loss_of(batch) / len(batches)
        with net.no_sync():
            loss.backward()
    (loss_of(last) / len(batches)).backward()
""",
        "The gradient is right, but the ranks meet after every batch",
    ),
    "never meets": (
        """
def accumulate(net, loss_of, batches):
    with net.no_sync():
        for batch in batches:
            (loss_of(batch) / len(batches)).backward()
""",
        "The ranks have gradients of their own",
    ),
    "the sum": (
        """
def accumulate(net, loss_of, batches):
    with net.no_sync():
        for batch in batches[:-1]:
            loss_of(batch).backward()
    loss_of(batches[-1]).backward()
""",
        "The gradient is the sum over the batches",
    ),
    "zero_grad in the loop": (
        """
def accumulate(net, loss_of, batches):
    for k, batch in enumerate(batches, 1):
        net.zero_grad()
        net.require_backward_grad_sync = k == len(batches)
        (loss_of(batch) / len(batches)).backward()
""",
        "Only the last batch is in the gradient",
    ),
}

ANOTHER = """
from contextlib import nullcontext


def accumulate(net, loss_of, batches):
    for k, batch in enumerate(batches, 1):
        with nullcontext() if k == len(batches) else net.no_sync():
            (loss_of(batch) / len(batches)).backward()
"""
