"""Wrong and right answers to exercise 05-1."""

WRONG = {
    "rounds down": (
        """
def rows_per_device(rows, devices):
    size = rows // devices
    return [size] * (devices - 1) + [rows - size * (devices - 1)]
""",
        "You round down and give the rest to the last device",
    ),
    "deals evenly": (
        """
def rows_per_device(rows, devices):
    return [rows // devices + (i < rows % devices) for i in range(devices)]
""",
        "You deal evenly, as tensor_split does",
    ),
    "lists idle devices": (
        """
def rows_per_device(rows, devices):
    size = -(-rows // devices)
    return [max(0, min(size, rows - i * size)) for i in range(devices)]
""",
        "A device without rows is not in the list",
    ),
    "too many pieces": (
        """
def rows_per_device(rows, devices):
    size = rows // devices
    return [min(size, rows - start) for start in range(0, rows, size)]
""",
        "There are more pieces than devices",
    ),
    "all pieces full": (
        """
def rows_per_device(rows, devices):
    size = -(-rows // devices)
    return [size for start in range(0, rows, size)]
""",
        "The numbers do not add up",
    ),
}

ANOTHER = """
def rows_per_device(rows, devices):
    size, split = (rows + devices - 1) // devices, []
    while rows > 0:
        split.append(min(size, rows))
        rows -= size
    return split
"""
