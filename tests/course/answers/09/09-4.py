SETUP = "from copy import deepcopy\n"

WRONG = {
    "without the scaler": (
        """
def snapshot(net, optimizer, scaler):
    return deepcopy({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
""",
        "The scaler is missing",
    ),
    "without the optimizer": (
        """
def snapshot(net, optimizer, scaler):
    return deepcopy({"net": net.state_dict(), "scaler": scaler.state_dict()})
""",
        "The optimizer is missing",
    ),
    "a reference": (
        """
def snapshot(net, optimizer, scaler):
    parts = {"net": net, "optimizer": optimizer, "scaler": scaler}
    return {name: part.state_dict() for name, part in parts.items()}
""",
        "A state_dict holds the tensors themselves",
    ),
    "a shallow copy": (
        """
def snapshot(net, optimizer, scaler):
    parts = {"net": net, "optimizer": optimizer, "scaler": scaler}
    return {name: dict(part.state_dict()) for name, part in parts.items()}
""",
        "A state_dict holds the tensors themselves",
    ),
}

ANOTHER = """
import io


def snapshot(net, optimizer, scaler):
    file = io.BytesIO()
    parts = {"net": net, "optimizer": optimizer, "scaler": scaler}
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    file.seek(0)
    return torch.load(file)
"""
