"""Wrong and right answers to exercise 01-5."""

WRONG = {
    "forgets the group": (
        """
def row_and_column_sums(x, rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    sums = []
    for lines in (grid, grid.T):
        for line in lines.tolist():
            group = dist.new_group(line)
        total = x.clone()
        dist.all_reduce(total)
        sums.append(total)
    return sums
""",
        "You sum over the whole world",
    ),
    "sums the sum": (
        """
def row_and_column_sums(x, rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    sums = []
    for lines in (grid, grid.T):
        for line in lines.tolist():
            group = dist.new_group(line)
            if rank in line:
                dist.all_reduce(x, group=group)
        sums.append(x.clone())
    return sums
""",
        "The second sum began with the first one's result",
    ),
    "mixes up rows and columns": (
        """
def row_and_column_sums(x, rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    sums = []
    for lines in (grid.T, grid):
        for line in lines.tolist():
            group = dist.new_group(line)
            if rank in line:
                total = x.clone()
                dist.all_reduce(total, group=group)
        sums.append(total)
    return sums
""",
        "Row and column have changed places",
    ),
    "takes the row twice": (
        """
def row_and_column_sums(x, rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    sums = []
    for lines in (grid, grid):
        for line in lines.tolist():
            group = dist.new_group(line)
            if rank in line:
                total = x.clone()
                dist.all_reduce(total, group=group)
        sums.append(total)
    return sums
""",
        "The second sum is that of the row again",
    ),
    "keeps the last group's": (
        """
def row_and_column_sums(x, rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    sums = []
    for lines in (grid, grid.T):
        for line in lines.tolist():
            total = x.clone()
            dist.all_reduce(total, group=dist.new_group(line))
        sums.append(total)
    return sums
""",
        "Some ranks kept their own number",
    ),
}

ANOTHER = """
def row_and_column_sums(x, rows, columns):
    mesh = dist.init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))
    sums = []
    for name in ("column", "row"):  # along a row, the column changes
        total = x.clone()
        dist.all_reduce(total, group=mesh.get_group(name))
        sums.append(total)
    return sums
"""
