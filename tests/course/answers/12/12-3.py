SETUP = "import os\nimport time\n"

WRONG = {
    "everybody fetches": (
        """
def download_once(path, fetch, local_rank):
    fetch(path)
    dist.barrier()
    with open(path) as file:
        return file.read()
""",
        "Several processes of a node fetch at once",
    ),
    "who sees none fetches": (
        """
def download_once(path, fetch, local_rank):
    if not os.path.exists(path):
        fetch(path)
    dist.barrier()
    with open(path) as file:
        return file.read()
""",
        "Several processes of a node fetch at once",
    ),
    "rank 0 of all": (
        """
def download_once(path, fetch, local_rank):
    if rank == 0:
        fetch(path)
    dist.barrier()
    with open(path) as file:
        return file.read()
""",
        "One process fetches for all nodes",
    ),
    "rank 0 of all sends it": (
        """
def download_once(path, fetch, local_rank):
    box = [None]
    if rank == 0:
        fetch(path)
        box = [open(path).read()]
    dist.broadcast_object_list(box)
    return box[0]
""",
        "One process fetches for all nodes",
    ),
    "nobody fetches": (
        """
def download_once(path, fetch, local_rank):
    dist.barrier()
    with open(path) as file:
        return file.read()
""",
        "Nobody calls fetch",
    ),
    "nobody waits": (
        """
def download_once(path, fetch, local_rank):
    if local_rank == 0:
        fetch(path)
    with open(path) as file:
        return file.read()
""",
        "Some read the file before it is complete",
    ),
    "waits too early": (
        """
def download_once(path, fetch, local_rank):
    dist.barrier()
    if local_rank == 0:
        fetch(path)
    with open(path) as file:
        return file.read()
""",
        "Some read the file before it is complete",
    ),
    "waits for a file of that name": (
        """
def download_once(path, fetch, local_rank):
    if local_rank == 0:
        fetch(path)
    while not os.path.exists(path):
        time.sleep(0.05)
    with open(path) as file:
        return file.read()
""",
        "Some read the file before it is complete",
    ),
    "one branch waits": (
        """
def download_once(path, fetch, local_rank):
    if local_rank == 0:
        fetch(path)
        dist.barrier()
    with open(path) as file:
        return file.read()
""",
        "Some processes wait for others that do not come",
    ),
    "the other branch waits": (
        """
def download_once(path, fetch, local_rank):
    if local_rank == 0:
        fetch(path)
    else:
        dist.barrier()
    with open(path) as file:
        return file.read()
""",
        "Some processes wait for others that do not come",
    ),
    "no text": (
        """
def download_once(path, fetch, local_rank):
    if local_rank == 0:
        fetch(path)
    dist.barrier()
""",
        "The file is there, but",
    ),
    "prints": (
        """
def download_once(path, fetch, local_rank):
    print("ten images")
""",
        "Nobody calls fetch",
    ),
}

ANOTHER = """
def download_once(path, fetch, local_rank):
    try:
        os.mkdir(path + ".lock")
    except FileExistsError:
        pass
    else:
        fetch(path)
    dist.all_reduce(torch.zeros(1, device=device))
    return open(path).read()
"""
