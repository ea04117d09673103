"""Wrong and right answers to exercise 08-5."""

WRONG = {
    "reduces on rank 0": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    if rank == 0:
        dist.all_reduce(total)
        mean = total.item() / world_size
        print(f"epoch {epoch}: loss {mean:.3f}")
        torch.save(net.module.state_dict(), path)
    dist.barrier()
    return total.item() / world_size
""",
        "Rank 0 alone is in a collective",
    ),
    "barrier under the if": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    mean = total.item() / world_size
    if rank == 0:
        print(f"epoch {epoch}: loss {mean:.3f}")
        torch.save(net.module.state_dict(), path)
        dist.barrier()
    return mean
""",
        "Rank 0 alone is in a collective",
    ),
    "everybody prints": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    mean = total.item() / world_size
    print(f"epoch {epoch}: loss {mean:.3f}")
    if rank == 0:
        torch.save(net.module.state_dict(), path)
    dist.barrier()
    return mean
""",
        "Every rank prints",
    ),
    "everybody saves": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    mean = total.item() / world_size
    if rank == 0:
        print(f"epoch {epoch}: loss {mean:.3f}")
    for writer in range(world_size):  # one after the other, so that the file stays whole
        if rank == writer:
            torch.save(net.module.state_dict(), path)
        dist.barrier()
    return mean
""",
        "Every rank writes the same file",
    ),
    "its own loss": (
        """
def report(epoch, loss, net, path):
    if rank == 0:
        print(f"epoch {epoch}: loss {loss:.3f}")
        torch.save(net.module.state_dict(), path)
    dist.barrier()
    return loss
""",
        "That is the loss of one rank's own images",
    ),
    "the sum": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch}: loss {total.item():.3f}")
        torch.save(net.module.state_dict(), path)
    dist.barrier()
    return total.item()
""",
        "That is the sum over the ranks",
    ),
    "DDP's names": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    mean = total.item() / world_size
    if rank == 0:
        print(f"epoch {epoch}: loss {mean:.3f}")
        torch.save(net.state_dict(), path)
    dist.barrier()
    return mean
""",
        "The names in the file begin with module.",
    ),
    "does not wait": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    mean = total.item() / world_size
    if rank == 0:
        print(f"epoch {epoch}: loss {mean:.3f}")
        torch.save(net.module.state_dict(), path)
    return mean
""",
        "Some ranks went on before the file was there",
    ),
    "does not save": (
        """
def report(epoch, loss, net, path):
    total = torch.tensor(loss, device=device)
    dist.all_reduce(total)
    mean = total.item() / world_size
    if rank == 0:
        print(f"epoch {epoch}: loss {mean:.3f}")
    return mean
""",
        "Nobody has written the file",
    ),
}

ANOTHER = """
def report(epoch, loss, net, path):
    if rank == 0:
        state = {name.removeprefix("module."): t for name, t in net.state_dict().items()}
        torch.save(state, path)
    mean = torch.tensor([loss / world_size], device=device)
    dist.all_reduce(mean)  # nobody is through before rank 0 has come, with the file written
    if rank == 0:
        print("epoch", f"{epoch}: loss", f"{mean.item():.3f}")
    return mean.item()
"""
