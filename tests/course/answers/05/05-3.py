"""Wrong and right answers to exercise 05-3."""

SETUP = """
import torch
from torch import nn
"""

WRONG = {
    "a new tensor": (
        """
class StepCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps = self.steps + 1
        return x
""",
        "Nothing is left of the count",
    ),
    "a number": (
        """
class StepCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return x
""",
        "steps is an ordinary attribute",
    ),
    "a tensor that is no buffer": (
        """
class StepCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.tensor(0)

    def forward(self, x):
        self.steps += 1
        return x
""",
        "Every device has counted",
    ),
    "rows": (
        """
class StepCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += len(x)
        return x
""",
        "You count rows",
    ),
    "returns nothing": (
        """
class StepCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += 1
""",
        "forward has to return x",
    ),
    "forgets super": (
        """
class StepCounter(nn.Module):
    def __init__(self):
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += 1
        return x
""",
        "AttributeError",
    ),
}

ANOTHER = """
class StepCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.Buffer(torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        with torch.no_grad():
            self.steps.add_(1)
        return x
"""
