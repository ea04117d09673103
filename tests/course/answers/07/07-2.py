"""Wrong and right answers to exercise 07-2."""

WRONG = {
    "no broadcast": (
        """
def wrap(net):
    def average(p):
        dist.all_reduce(p.grad)
        p.grad /= world_size

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(average)
""",
        "The ranks still have weights of their own",
    ),
    "averages the weights": (
        """
def wrap(net):
    def average(p):
        dist.all_reduce(p.grad)
        p.grad /= world_size

    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= world_size
        p.register_post_accumulate_grad_hook(average)
""",
        "The weights are the mean of all ranks'",
    ),
    "no hook": (
        """
def wrap(net):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
""",
        "Every rank has its own gradient only",
    ),
    "a result that nobody uses": (
        """
def wrap(net):
    def average(p):
        mean = p.grad.clone()
        dist.all_reduce(mean)
        mean /= world_size

    for p in net.parameters():
        dist.broadcast(p.data, 0)
        p.register_post_accumulate_grad_hook(average)
""",
        "Every rank has its own gradient only",
    ),
    "the sum": (
        """
def wrap(net):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
""",
        "The gradient is the sum over the ranks",
    ),
    "broadcast on rank 0 only": (
        """
def wrap(net):
    def average(p):
        dist.all_reduce(p.grad)
        p.grad /= world_size

    for p in net.parameters():
        if rank == 0:
            dist.broadcast(p.data, 0)
        p.register_post_accumulate_grad_hook(average)
""",
        "Ranks wait for one another",
    ),
    "too much": (
        """
def wrap(net):
    def average(p):
        dist.barrier()
        dist.all_reduce(p.grad)
        p.grad /= world_size

    for p in net.parameters():
        dist.broadcast(p.data, 0)
        p.register_post_accumulate_grad_hook(average)
""",
        "goal: collectives",
    ),
}

ANOTHER = """
def wrap(net):
    params = list(net.parameters())
    flat = torch.cat([p.detach().flatten() for p in params])
    dist.broadcast(flat, 0)
    for p, part in zip(params, flat.split([p.numel() for p in params])):
        p.data.copy_(part.view_as(p))

    def share(p):
        work = dist.all_reduce(p.grad, async_op=True)
        work.wait()
        p.grad.div_(dist.get_world_size())

    for p in params:
        p.register_post_accumulate_grad_hook(share)
"""
