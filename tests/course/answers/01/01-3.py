"""Wrong and right answers to exercise 01-3."""

WRONG = {
    "waits for the counter itself": (
        """
def meet(store, name, world_size):
    store.add(name, 1)
    store.wait([name])
""",
        "Some ranks go on before everybody has come",
    ),
    "opens the door at once": (
        """
def meet(store, name, world_size):
    store.add(name, 1)
    store.set(name + " open", "")
    store.wait([name + " open"])
""",
        "Some ranks go on before everybody has come",
    ),
    "opens the door for ever": (
        """
def meet(store, name, world_size):
    if store.add(name, 1) == world_size:
        store.set("open", "")
    store.wait(["open"])
""",
        "The first meeting works",
    ),
    "counts from zero": (
        """
def meet(store, name, world_size):
    if store.add(name, 1) - 1 == world_size:
        store.set(name + " open", "")
    store.wait([name + " open"])
""",
        "Nobody opens the door",
    ),
    "calls barrier": (
        """
def meet(store, name, world_size):
    store.add(name, 1)
    dist.barrier()
""",
        "forbidden: barrier",
    ),
}

ANOTHER = """
def meet(store, name, world_size):
    import time

    store.add(name, 1)
    while store.add(name, 0) < world_size:
        time.sleep(0.01)
"""
