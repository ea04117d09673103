SETUP = "from torch import nn\n"

WRONG = {
    "clips scaled gradients": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm
""",
        "You clip scaled gradients",
    ),
    "unscales after it has clipped": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return norm
""",
        "You clip scaled gradients",
    ),
    "never updates": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    return norm
""",
        "The scaler refuses a second step",
    ),
    "never updates nor unscales": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    return norm
""",
        "The scaler refuses a second step",
    ),
    "never scales": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    loss.backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm
""",
        "The loss was never scaled",
    ),
    "steps by itself": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    optimizer.step()
    scaler.update()
    return norm
""",
        "The overflow is in the weights",
    ),
    "keeps old gradients": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm
""",
        "The gradients of the last step are still there",
    ),
    "clips after the step": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.update()
    return norm
""",
        "The weights move by the whole gradient",
    ),
    "returns nothing": (
        """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
""",
        "The step is right. Return the norm too",
    ),
}

ANOTHER = """
def clipped_step(net, loss, optimizer, scaler, max_norm):
    net.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    gradients = [p.grad for p in net.parameters()]
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt().item()
    for g in gradients:
        g *= min(1, max_norm / norm)
    scaler.step(optimizer)
    scaler.update()
    return norm
"""
