"""Wrong and right answers to exercise 08-3."""

SETUP = """
from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split


def items(loader):
    return [int(item) for batch in loader for item in batch]
"""

WRONG = {
    "splits on each rank for itself": (
        """
def deal(data, epochs):
    train_set, test_set = random_split(data, [0.75, 0.25])
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=4, sampler=sampler)
    dealt = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        dealt.append(items(loader))
    tests = DistributedSampler(test_set, shuffle=False)
    return dealt, items(DataLoader(test_set, batch_size=4, sampler=tests))
""",
        "Some numbers are trained on by one rank and tested by another",
    ),
    "no sampler for training": (
        """
def deal(data, epochs):
    generator = torch.Generator().manual_seed(0)
    train_set, test_set = random_split(data, [0.75, 0.25], generator=generator)
    loader = DataLoader(train_set, batch_size=4, shuffle=True)
    tests = DistributedSampler(test_set, shuffle=False)
    tested = items(DataLoader(test_set, batch_size=4, sampler=tests))
    return [items(loader) for _ in range(epochs)], tested
""",
        "Every rank trains on the whole training set",
    ),
    "no sampler for the test": (
        """
def deal(data, epochs):
    generator = torch.Generator().manual_seed(0)
    train_set, test_set = random_split(data, [0.75, 0.25], generator=generator)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=4, sampler=sampler)
    dealt = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        dealt.append(items(loader))
    return dealt, items(DataLoader(test_set, batch_size=4))
""",
        "Every rank tests the whole test set",
    ),
    "forgets set_epoch": (
        """
def deal(data, epochs):
    generator = torch.Generator().manual_seed(0)
    train_set, test_set = random_split(data, [0.75, 0.25], generator=generator)
    loader = DataLoader(train_set, batch_size=4, sampler=DistributedSampler(train_set))
    tests = DistributedSampler(test_set, shuffle=False)
    tested = items(DataLoader(test_set, batch_size=4, sampler=tests))
    return [items(loader) for _ in range(epochs)], tested
""",
        "The second epoch is the first one again",
    ),
    "sampler and shuffle": (
        """
def deal(data, epochs):
    generator = torch.Generator().manual_seed(0)
    train_set, test_set = random_split(data, [0.75, 0.25], generator=generator)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=4, sampler=sampler, shuffle=True)
    return [items(loader) for _ in range(epochs)], items(DataLoader(test_set))
""",
        "A DataLoader takes a sampler or shuffle=True",
    ),
    "returns the loaders' lengths": (
        """
def deal(data, epochs):
    return len(data) // world_size, epochs
""",
        "TypeError",
    ),
}

WRONG["prints"] = (
    """
def deal(data, epochs):
    print(len(data), epochs)
""",
    "nothing",
)

ANOTHER = """
def deal(data, epochs):
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(5)).tolist()
    cut = len(data) * 3 // 4
    train, test = order[:cut], order[cut:]
    sampler = DistributedSampler(train, seed=11, drop_last=True)
    dealt = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        dealt.append([data[train[i]] for i in sampler])
    return dealt, [data[i] for i in test[rank::world_size]]
"""
