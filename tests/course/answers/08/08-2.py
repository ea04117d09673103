"""Wrong and right answers to exercise 08-2."""

SETUP = """
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def to_group_norm(net):
    for name, child in net.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(net, name, nn.GroupNorm(4, child.num_features).to(device))
        else:
            to_group_norm(child)
    return net
"""

WRONG = {
    "wraps first": (
        """
def train_mixed(model, batches):
    ddp = DDP(model)
    to_group_norm(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(ddp(images), labels)
        loss.backward()
        optimizer.step()
    return ddp
""",
        "DDP waits for gradients of layers that are no longer there",
    ),
    "does not convert": (
        """
def train_mixed(model, batches):
    ddp = DDP(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(ddp(images), labels)
        loss.backward()
        optimizer.step()
    return ddp
""",
        "The model is not converted",
    ),
    "makes the optimizer first": (
        """
def train_mixed(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ddp = DDP(to_group_norm(model))
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(ddp(images), labels)
        loss.backward()
        optimizer.step()
    return ddp
""",
        "The optimizer holds the parameters",
    ),
    "calls the model inside": (
        """
def train_mixed(model, batches):
    ddp = DDP(to_group_norm(model))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return ddp
""",
        "Each rank has trained a model of its own",
    ),
    "no autocast": (
        """
def train_mixed(model, batches):
    ddp = DDP(to_group_norm(model))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for images, labels in batches:
        optimizer.zero_grad()
        F.cross_entropy(ddp(images), labels).backward()
        optimizer.step()
    return ddp
""",
        "The forward pass runs in float32",
    ),
    "backward under autocast": (
        """
def train_mixed(model, batches):
    ddp = DDP(to_group_norm(model))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            F.cross_entropy(ddp(images), labels).backward()
        optimizer.step()
    return ddp
""",
        "backward() stands inside",
    ),
    "returns nothing": (
        """
def train_mixed(model, batches):
    print(DDP(to_group_norm(model)))
""",
        "nothing",
    ),
}

ANOTHER = """
def train_mixed(model, batches):
    to_group_norm(model)
    wrapped = DDP(model)
    cast = torch.autocast(device.type, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in batches:
        with cast:
            scores = wrapped(images)
            loss = nn.CrossEntropyLoss()(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return wrapped
"""
