WRONG = {
    "forgets the start": (
        "def my_numbers(numbers):\n    return numbers[::world_size]\n",
        "Every rank takes the same numbers",
    ),
    "takes one": (
        "def my_numbers(numbers):\n    return numbers[rank]\n",
        "Each rank takes one number only",
    ),
    "cuts blocks": (
        "def my_numbers(numbers):\n    size = len(numbers) // world_size\n"
        "    return numbers[rank * size : (rank + 1) * size]\n",
        "Each rank takes a block",
    ),
    "swaps start and step": (
        "def my_numbers(numbers):\n    return numbers[world_size::rank + 1]\n",
        "different",
    ),
}
ANOTHER = """
def my_numbers(numbers):
    return [number for i, number in enumerate(numbers) if i % world_size == rank]
"""
