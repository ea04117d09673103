WRONG = {
    "everybody writes": (
        """
def save_and_load(net, path):
    torch.save(net.state_dict(), path)
    dist.barrier()
    net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
""",
        "Every rank writes the file",
    ),
    "nobody writes": (
        """
def save_and_load(net, path):
    dist.barrier()
    net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
""",
        "Nothing is saved",
    ),
    "nobody waits": (
        """
def save_and_load(net, path):
    if rank == 0:
        torch.save(net.state_dict(), path)
    net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
""",
        "The others read the file before",
    ),
    "waits too early": (
        """
def save_and_load(net, path):
    dist.barrier()
    if rank == 0:
        torch.save(net.state_dict(), path)
    net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
""",
        "The others read the file before",
    ),
    "rank 0 waits alone": (
        """
def save_and_load(net, path):
    if rank == 0:
        torch.save(net.state_dict(), path)
        dist.barrier()
    net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
""",
        "Only rank 0 calls the barrier",
    ),
    "rank 0 reads alone": (
        """
def save_and_load(net, path):
    if rank == 0:
        torch.save(net.state_dict(), path)
        net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
    dist.barrier()
    for parameter in net.parameters():
        dist.broadcast(parameter.data, 0)
""",
        "Only rank 0 has read the file",
    ),
    "no map_location": (
        """
def save_and_load(net, path):
    if rank == 0:
        torch.save(net.state_dict(), path)
    dist.barrier()
    net.load_state_dict(torch.load(path, weights_only=True))
""",
        "A file remembers the device",
    ),
    "read and thrown away": (
        """
def save_and_load(net, path):
    if rank == 0:
        torch.save(net.state_dict(), path)
    dist.barrier()
    torch.load(path, map_location=device, weights_only=True)
""",
        "The file was read, but",
    ),
}

ANOTHER = """
def save_and_load(net, path):
    if rank != 0:
        dist.barrier()
        with open(path, "rb") as file:
            net.load_state_dict(torch.load(file, "cpu"))
    else:
        with open(path, "wb") as file:
            torch.save(dict(net.state_dict()), file)
        dist.barrier()
"""
