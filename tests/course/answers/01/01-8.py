"""Wrong and right answers to exercise 01-8."""

WRONG = {
    "knows pairs only": (
        """
def backend_for(text, device):
    return dict(pair.split(":") for pair in text.split(",")).get(device)
""",
        "A plain name has no colon",
    ),
    "insists on a pair": (
        """
def backend_for(text, device):
    if ":" not in text:
        return None if (text, device) == ("nccl", "cpu") else text
    return dict(pair.split(":") for pair in text.split(","))[device]
""",
        "There need not be a pair",
    ),
    "takes a plain name for everything": (
        """
def backend_for(text, device):
    if ":" not in text:
        return text
    return dict(pair.split(":") for pair in text.split(",")).get(device)
""",
        "NCCL serves GPUs only",
    ),
    "keeps gloo on the CPU": (
        """
def backend_for(text, device):
    if ":" not in text:
        text = {"gloo": "cpu:gloo", "nccl": "cuda:nccl"}[text]
    return dict(pair.split(":") for pair in text.split(",")).get(device)
""",
        "gloo serves GPU tensors too",
    ),
    "takes the first pair": (
        """
def backend_for(text, device):
    if ":" not in text:
        return None if (text, device) == ("nccl", "cpu") else text
    return text.split(",")[0].split(":")[1]
""",
        "You take one pair for every device",
    ),
}

ANOTHER = """
def backend_for(text, device):
    long = {"gloo": "cpu:gloo,cuda:gloo", "nccl": "cuda:nccl"}.get(text, text)
    for pair in long.split(","):
        kind, _, backend = pair.partition(":")
        if kind == device:
            return backend
    return None
"""
