WRONG = {
    "sends to everybody itself": (
        "def pass_on(x, src):\n    if rank == src:\n        for other in range(world_size):\n"
        "            if other != src:\n                dist.send(x, other)\n"
        "    else:\n        dist.recv(x, src)\n",
        "It works, but the source sends n − 1 messages",
    ),
    "everybody sends first": (
        "def pass_on(x, src):\n    dist.send(x, (rank + 1) % world_size)\n"
        "    dist.recv(x, (rank - 1) % world_size)\n",
        "Ranks wait for one another",
    ),
    "closes the ring": (
        "def pass_on(x, src):\n    if rank != src:\n        dist.recv(x, (rank - 1) % world_size)\n"
        "    dist.send(x, (rank + 1) % world_size)\n",
        "Ranks wait for one another",
    ),
    "begins with rank 0": (
        "def pass_on(x, src):\n    if rank > 0:\n        dist.recv(x, rank - 1)\n"
        "    if rank < world_size - 1:\n        dist.send(x, rank + 1)\n",
        "That is what rank 0 had",
    ),
    "stops at the last number": (
        "def pass_on(x, src):\n    if rank > src:\n        dist.recv(x, rank - 1)\n"
        "    if src <= rank < world_size - 1:\n        dist.send(x, rank + 1)\n",
        "Some ranks still have their own numbers",
    ),
    "calls broadcast": (
        "def pass_on(x, src):\n    dist.broadcast(x, src)\n",
        "forbidden: broadcast",
    ),
}
ANOTHER = """
def pass_on(x, src):
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    if rank != src:
        dist.irecv(x, before).wait()
    if after != src:
        dist.isend(x, after).wait()
"""
