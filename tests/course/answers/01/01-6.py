"""Wrong and right answers to exercise 01-6."""

WRONG = {
    "leaves the bytes": (
        """
def get_or(store, key, seconds, default):
    from datetime import timedelta

    try:
        store.wait([key], timedelta(seconds=seconds))
    except dist.DistStoreError:
        return default
    return store.get(key)
""",
        "The value comes as bytes",
    ),
    "looks once": (
        """
def get_or(store, key, seconds, default):
    return store.get(key).decode() if store.check([key]) else default
""",
        "The key came after a moment",
    ),
    "waits as long as the store does": (
        """
def get_or(store, key, seconds, default):
    try:
        return store.get(key).decode()
    except dist.DistStoreError:
        return default
""",
        "You waited longer than `seconds`",
    ),
    "changes the store": (
        """
def get_or(store, key, seconds, default):
    from datetime import timedelta

    store.set_timeout(timedelta(seconds=seconds))
    try:
        return store.get(key).decode()
    except dist.DistStoreError:
        return default
""",
        "The store has another timeout now",
    ),
    "does not catch": (
        """
def get_or(store, key, seconds, default):
    from datetime import timedelta

    store.wait([key], timedelta(seconds=seconds))
    return store.get(key).decode() or default
""",
        "It ends with the store's error",
    ),
    "hands over a number": (
        """
def get_or(store, key, seconds, default):
    try:
        store.wait(key, seconds)
    except dist.DistStoreError:
        return default
    return store.get(key).decode()
""",
        "wait takes a list of keys",
    ),
}

ANOTHER = """
def get_or(store, key, seconds, default):
    import time

    end = time.monotonic() + seconds
    while not store.check([key]):
        if time.monotonic() > end:
            return default
        time.sleep(0.01)
    return str(store.get(key), "utf-8")
"""
