WRONG = {
    "gathers everything": (
        "def my_column(row):\n    rows = [torch.empty_like(row) for _ in range(world_size)]\n"
        "    dist.all_gather(rows, row)\n    return torch.stack(rows)[:, rank]\n",
        "forbidden: all_gather",
    ),
    "gathers everything by a name of its own": (
        "from torch.distributed import all_gather_into_tensor as collect\n\n"
        "def my_column(row):\n    rows = torch.empty(world_size * world_size, device=device)\n"
        "    collect(rows, row)\n    return rows.view(world_size, -1)[:, rank]\n",
        "forbidden: all_gather",
    ),
    "gathers everything by a functional collective": (
        "import torch.distributed._functional_collectives as functional\n\n"
        "def my_column(row):\n    rows = torch.ops._c10d_functional.all_gather_into_tensor(\n"
        "        row, world_size, dist.group.WORLD.group_name)\n"
        "    rows = torch.ops._c10d_functional.wait_tensor(rows)\n"
        "    return rows.view(world_size, -1)[:, rank]\n",
        "forbidden: all_gather",
    ),
    "gathers everything by the group's method": (
        "def my_column(row):\n    rows = [torch.empty_like(row) for _ in range(world_size)]\n"
        "    dist.group.WORLD.allgather([rows], [row]).wait()\n"
        "    return torch.stack(rows)[:, rank]\n",
        "forbidden: all_gather",
    ),
    "returns what it sent": (
        "def my_column(row):\n    column = torch.empty_like(row)\n"
        "    dist.all_to_all_single(column, row)\n    return row\n",
        "That is the row that the rank began with",
    ),
    "swaps input and output": (
        "def my_column(row):\n    column = torch.zeros_like(row)\n"
        "    dist.all_to_all_single(row, column)\n    return column\n",
        "The tensor for the result is still as it was made",
    ),
    "leaves it in pieces": (
        "def my_column(row):\n    pieces = [torch.empty(1, device=device) for _ in row]\n"
        "    dist.all_to_all(pieces, list(row.split(1)))\n    return torch.stack(pieces)\n",
        "The numbers are right, the shape is not",
    ),
    "adds up": (
        "def my_column(row):\n    dist.all_reduce(row)\n    return row\n",
        "Every rank has the sum of the rows",
    ),
}
ANOTHER = """
def my_column(row):
    pieces = [torch.empty(1, device=device) for _ in range(world_size)]
    dist.all_to_all(pieces, list(row.split(1)))
    return torch.cat(pieces)
"""
