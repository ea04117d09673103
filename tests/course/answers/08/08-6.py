"""Wrong and right answers to exercise 08-6."""

SETUP = """
from torch.utils.data import DataLoader, DistributedSampler, Subset
"""

WRONG = {
    "pads": (
        """
def test(net, test_set):
    counts = torch.zeros(2, device=device)
    sampler = DistributedSampler(test_set, shuffle=False)
    for pixels, labels in DataLoader(test_set, batch_size=100, sampler=sampler):
        counts[0] += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum()
        counts[1] += len(labels)
    dist.all_reduce(counts)
    correct, images = counts.tolist()
    return correct / images, int(images)
""",
        "Some images are counted twice",
    ),
    "does not reduce": (
        """
def test(net, test_set):
    share = Subset(test_set, range(rank, len(test_set), world_size))
    correct = images = 0
    for pixels, labels in DataLoader(share, batch_size=100):
        correct += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
        images += len(labels)
    return correct / images, images
""",
        "Each rank has the result of its own share",
    ),
    "everybody tests everything": (
        """
def test(net, test_set):
    counts = torch.zeros(2, device=device)
    for pixels, labels in DataLoader(test_set, batch_size=100):
        counts[0] += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum()
        counts[1] += len(labels)
    dist.all_reduce(counts)
    correct, images = counts.tolist()
    return correct / images, int(images)
""",
        "Every rank has tested every image",
    ),
    "the mean of accuracies": (
        """
def test(net, test_set):
    share = Subset(test_set, range(rank, len(test_set), world_size))
    correct = 0
    for pixels, labels in DataLoader(share, batch_size=100):
        correct += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
    accuracy = torch.tensor(correct / len(share), device=device)
    dist.all_reduce(accuracy)
    return accuracy.item() / world_size, len(test_set)
""",
        "That is the mean of the ranks' accuracies",
    ),
    "reduces on rank 0": (
        """
def test(net, test_set):
    share = Subset(test_set, range(rank, len(test_set), world_size))
    counts = torch.zeros(2, device=device)
    for pixels, labels in DataLoader(share, batch_size=100):
        counts[0] += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum()
        counts[1] += len(labels)
    if rank == 0:
        dist.all_reduce(counts)
    correct, images = counts.tolist()
    return correct / images, int(images)
""",
        "Rank 0 alone is in a collective",
    ),
    "two collectives": (
        """
def test(net, test_set):
    share = Subset(test_set, range(rank, len(test_set), world_size))
    correct, images = torch.zeros(1, device=device), torch.zeros(1, device=device)
    for pixels, labels in DataLoader(share, batch_size=100):
        correct += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum()
        images += len(labels)
    dist.all_reduce(correct)
    dist.all_reduce(images)
    return correct.item() / images.item(), int(images.item())
""",
        "The result is right, with more collectives",
    ),
    "prints": (
        """
def test(net, test_set):
    print(8 / 13, 13)
""",
        "nothing",
    ),
}

ANOTHER = """
def test(net, test_set):
    correct = torch.tensor(0, device=device)
    for index in range(rank, len(test_set), world_size):
        pixels, label = test_set[index]
        correct += net(pixels.to(device).unsqueeze(0)).argmax().item() == label
    dist.all_reduce(correct)
    return correct.item() / len(test_set), len(test_set)
"""
