"""Wrong and right answers to exercise 13-3."""

WRONG = {
    "pulls once": (
        """
def train(server, gradient, steps):
    w, version = server.rpc_sync().pull()
    for _ in range(steps):
        server.rpc_sync().push(gradient(w), version)
""",
        "You fetch the weights once",
    ),
    "trains a copy": (
        """
def train(server, gradient, steps):
    mine = server.to_here()
    for _ in range(steps):
        w, version = mine.pull()
        mine.push(gradient(w), version)
""",
        "The server has seen nothing",
    ),
    "one step": (
        """
def train(server, gradient, steps):
    w, version = server.rpc_sync().pull()
    server.rpc_sync().push(gradient(w), version)
""",
        "Each worker takes one step only",
    ),
    "counts its own versions": (
        """
def train(server, gradient, steps):
    for version in range(steps):
        w, _ = server.rpc_sync().pull()
        server.rpc_sync().push(gradient(w), version)
""",
        "The weights are right but the versions are not",
    ),
    "calls the reference": (
        """
def train(server, gradient, steps):
    for _ in range(steps):
        w, version = server.pull()
        server.push(gradient(w), version)
""",
        "server is a reference",
    ),
    "waits for its own version": (
        """
def train(server, gradient, steps):
    w, version = server.rpc_sync().pull()
    while version < 2 * steps * world_size:
        server.rpc_sync().push(gradient(w), version)
""",
        "TimedOut",
    ),
}

ANOTHER = """
def train(server, gradient, steps):
    for _ in range(steps):
        w, version = server.rpc_async().pull().wait()
        pushed = server.remote().push(gradient(w), version)
        pushed.to_here()
"""
