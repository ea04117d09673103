"""Wrong and right answers to exercise 13-2."""

WRONG = {
    "no lock": (
        """
def add_to(cell, lock, amount):
    total = cell.read() + amount
    cell.write(total)
    return total
""",
        "Updates are lost",
    ),
    "a lock round the write": (
        """
def add_to(cell, lock, amount):
    total = cell.read() + amount
    with lock:
        cell.write(total)
    return total
""",
        "Updates are lost",
    ),
    "two locked pieces": (
        """
def add_to(cell, lock, amount):
    with lock:
        total = cell.read() + amount
    with lock:
        cell.write(total)
    return total
""",
        "Updates are lost",
    ),
    "a lock of its own": (
        """
import threading


def add_to(cell, lock, amount):
    with threading.Lock():
        total = cell.read() + amount
        cell.write(total)
        return total
""",
        "Updates are lost",
    ),
    "never gives it back": (
        """
def add_to(cell, lock, amount):
    lock.acquire()
    total = cell.read() + amount
    cell.write(total)
    return total
""",
        "The lock was never given back",
    ),
    "returns nothing": (
        """
def add_to(cell, lock, amount):
    with lock:
        cell.write(cell.read() + amount)
""",
        "It counts right but returns nothing",
    ),
    "does not write": (
        """
def add_to(cell, lock, amount):
    with lock:
        return cell.read() + amount
""",
        "Nothing was added",
    ),
}

ANOTHER = """
def add_to(cell, lock, amount):
    lock.acquire()
    try:
        total = cell.read() + amount
        cell.write(total)
    finally:
        lock.release()
    return total
"""
