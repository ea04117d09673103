"""Wrong and right answers to exercise 01-2."""

WRONG = {
    "reads, then writes": (
        """
def take_ticket(store):
    if not store.check(["tickets"]):
        store.set("tickets", "0")
    ticket = int(store.get("tickets"))
    store.set("tickets", str(ticket + 1))
    return ticket
""",
        "You set what you had read",
    ),
    "reads a key that is not there": (
        """
def take_ticket(store):
    ticket = int(store.get("tickets"))
    store.set("tickets", str(ticket + 1))
    return ticket
""",
        "You wait for a key that nobody has set yet",
    ),
    "begins at one": (
        """
def take_ticket(store):
    return store.add("tickets", 1)
""",
        "Your tickets begin at 1",
    ),
    "takes its rank": (
        """
def take_ticket(store):
    return rank
""",
        "Every rank gets its own rank",
    ),
    "counts for itself": (
        """
def take_ticket(store):
    return store.add(f"tickets of {rank}", 1) - 1
""",
        "Ranks get equal tickets",
    ),
    "asks for its rank": (
        """
def take_ticket(store):
    return dist.get_rank()
""",
        "forbidden: get_rank",
    ),
}

ANOTHER = """
def take_ticket(store):
    already_taken = store.add("number", 1)
    return already_taken - 1
"""
