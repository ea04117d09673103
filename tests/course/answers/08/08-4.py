"""Wrong and right answers to exercise 08-4."""

SETUP = """
import torch.nn.functional as F
"""

WRONG = {
    "does not scale": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = F.mse_loss(net(images), labels)
    loss.backward()
    optimizer.step()
""",
        "The weights have not moved",
    ),
    "steps by itself": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = F.mse_loss(net(images), labels)
    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
""",
        "AssertionError",
    ),
    "steps by itself, without an update": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = F.mse_loss(net(images), labels)
    scaler.scale(loss).backward()
    optimizer.step()
""",
        "The step is as many times too long",
    ),
    "divides by hand": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = F.mse_loss(net(images), labels)
    scaler.scale(loss).backward()
    for p in net.parameters():
        p.grad /= scaler.get_scale()
    optimizer.step()
""",
        "A step was taken with gradients that are not finite",
    ),
    "asks before it steps, by hand": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = F.mse_loss(net(images), labels)
    scaler.scale(loss).backward()
    for p in net.parameters():
        p.grad /= scaler.get_scale()
    if all(p.grad.isfinite().all() for p in net.parameters()):
        optimizer.step()
""",
        "After an overflow the scale has to fall",
    ),
    "no update": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.float16):
        loss = F.mse_loss(net(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
""",
        "scaler.step() was called twice",
    ),
    "no autocast": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    optimizer.zero_grad()
    loss = F.mse_loss(net(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "The forward pass is not in float16",
    ),
    "prints": (
        """
def scaled_step(net, optimizer, scaler, images, labels):
    print(scaler.get_scale())
""",
        "Nothing was computed",
    ),
}

ANOTHER = """
def scaled_step(net, optimizer, scaler, images, labels):
    with torch.autocast(device.type, dtype=torch.float16):
        out = net(images)
        loss = (out.float() - labels).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
"""
