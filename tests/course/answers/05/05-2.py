"""Wrong and right answers to exercise 05-2."""

SETUP = """
from concurrent.futures import ThreadPoolExecutor

import torch
"""

WRONG = {
    "as before": (
        """
def apply_on_threads(replicas, pieces):
    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(lambda replica, piece: replica(piece), replicas, pieces))
""",
        "Under no_grad the replicas keep a graph all the same",
    ),
    "asks in the thread": (
        """
def apply_on_threads(replicas, pieces):
    def work(replica, piece):
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            return replica(piece)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(work, replicas, pieces))
""",
        "Under no_grad the replicas keep a graph all the same",
    ),
    "one after another": (
        """
def apply_on_threads(replicas, pieces):
    return [replica(piece) for replica, piece in zip(replicas, pieces)]
""",
        "The replicas do not all run at the same time",
    ),
    "waits for each": (
        """
def apply_on_threads(replicas, pieces):
    enabled = torch.is_grad_enabled()

    def work(replica, piece):
        with torch.set_grad_enabled(enabled):
            return replica(piece)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return [pool.submit(work, r, p).result() for r, p in zip(replicas, pieces)]
""",
        "The replicas do not all run at the same time",
    ),
    "two threads only": (
        """
def apply_on_threads(replicas, pieces):
    enabled = torch.is_grad_enabled()

    def work(replica, piece):
        with torch.set_grad_enabled(enabled):
            return replica(piece)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, replicas, pieces))
""",
        "The replicas do not all run at the same time",
    ),
    "as they are done": (
        """
def apply_on_threads(replicas, pieces):
    import threading

    enabled, outputs = torch.is_grad_enabled(), []

    def work(replica, piece):
        with torch.set_grad_enabled(enabled):
            outputs.append(replica(piece))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(replicas, pieces)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs
""",
        "The outputs are in the order in which the threads were done",
    ),
    "never a graph": (
        """
def apply_on_threads(replicas, pieces):
    def work(replica, piece):
        with torch.no_grad():
            return replica(piece)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(work, replicas, pieces))
""",
        "In training no graph is kept",
    ),
    "futures": (
        """
def apply_on_threads(replicas, pieces):
    enabled = torch.is_grad_enabled()

    def work(replica, piece):
        with torch.set_grad_enabled(enabled):
            return replica(piece)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return [pool.submit(work, r, p) for r, p in zip(replicas, pieces)]
""",
        "It returns futures",
    ),
    "returns nothing": (
        """
def apply_on_threads(replicas, pieces):
    with ThreadPoolExecutor(len(replicas)) as pool:
        list(pool.map(lambda replica, piece: replica(piece), replicas, pieces))
""",
        "nothing",
    ),
}

ANOTHER = """
def apply_on_threads(replicas, pieces):
    import threading

    enabled, outputs = torch.is_grad_enabled(), [None] * len(replicas)

    def work(i):
        torch.set_grad_enabled(enabled)
        outputs[i] = replicas[i](pieces[i])

    threads = [threading.Thread(target=work, args=[i]) for i in range(len(replicas))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs
"""
