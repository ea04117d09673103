"""Wrong and right answers to exercise 07-6."""

WRONG = {
    "a rank's own": (
        """
def global_statistics(x):
    return x.mean(0), x.var(0, unbiased=False)
""",
        "These are the statistics of a rank's own rows",
    ),
    "the mean of means": (
        """
def global_statistics(x):
    mine = torch.stack([x.mean(0), x.var(0, unbiased=False)])
    dist.all_reduce(mine)
    mean, variance = mine / world_size
    return mean, variance
""",
        "You take the mean of the ranks' means and variances",
    ),
    "the mean of variances": (
        """
def global_statistics(x):
    sums = torch.cat([x.sum(0), len(x) * x.var(0, unbiased=False), x.new_tensor([len(x)])])
    dist.all_reduce(sums)
    mean, variance = (sums[:-1] / sums[-1]).chunk(2)
    return mean, variance
""",
        "The mean is right, but the variance is the mean of the ranks' variances",
    ),
    "one less": (
        """
def global_statistics(x):
    mine = torch.cat([x.sum(0), (x * x).sum(0), x.new_tensor([len(x)])])
    dist.all_reduce(mine)
    count = mine[-1]
    mean, squares = (mine[:-1] / count).chunk(2)
    return mean, (squares - mean**2) * count / (count - 1)
""",
        "You divide by one less than the number of rows",
    ),
    "three collectives": (
        """
def global_statistics(x):
    total, squares, count = x.sum(0), (x * x).sum(0), x.new_tensor([len(x)])
    for part in (total, squares, count):
        dist.all_reduce(part)
    return total / count, squares / count - (total / count) ** 2
""",
        "Right, but with more than one collective",
    ),
    "the mean only": (
        """
def global_statistics(x):
    mine = torch.cat([x.sum(0), x.new_tensor([len(x)])])
    dist.all_reduce(mine)
    return mine[:-1] / mine[-1]
""",
        "ValueError",
    ),
}

ANOTHER = """
def global_statistics(x):
    columns = x.shape[1]
    sums = x.new_zeros(2 * columns + 1)
    sums[:columns] = x.sum(dim=0)
    sums[columns:-1] = x.pow(2).sum(dim=0)
    sums[-1] = x.shape[0]
    dist.all_reduce(sums)
    mean = sums[:columns] / sums[-1]
    return mean, sums[columns:-1] / sums[-1] - mean.pow(2)
"""
