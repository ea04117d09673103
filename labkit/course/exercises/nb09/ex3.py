"""Exercise 09-3: write a module with a counter that survives when DataParallel copies it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...answers import edit
from ...compare import number
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When

STEPS = 4
#: (devices, rows of a batch); in both cases device 0 gets three rows.
LAYOUTS = ((2, 6), (3, 7))
MINE = 3
BUFFER, PARAMETER = "a buffer", "a parameter"


def _replicas(model: nn.Module, count: int) -> list[nn.Module]:
    """Copy a model as torch.nn.parallel.replicate does, for any device.

    Ordinary attributes are shared by all replicas; parameters and buffers are the model's own in
    the first one and copies in the others.
    """
    replicas = []
    for i in range(count):
        twins = {module: module._replicate_for_data_parallel() for module in model.modules()}
        for module, twin in twins.items():
            for name, child in module.named_children():
                setattr(twin, name, twins[child])
            for name, tensor in {**module._parameters, **module._buffers}.items():
                if tensor is not None:
                    setattr(twin, name, tensor if i == 0 else tensor.detach().clone())
        replicas.append(twins[model])
    return replicas


def trial(answer: Callable[[], nn.Module], here: Here) -> dict[str, Any]:
    found: dict[str, Any] = {}
    unchanged = True
    for devices, rows in LAYOUTS:
        model = answer()
        for _ in range(STEPS):
            x = torch.randn(rows, 2)
            pieces = x.chunk(devices)
            for replica, piece in zip(_replicas(model, devices), pieces, strict=True):
                output = replica(piece.clone())
                unchanged &= isinstance(output, torch.Tensor) and output.equal(piece)
        found[f"{devices} devices"] = number(getattr(model, "steps", None))
    return {
        **found,
        "x unchanged": unchanged,
        "steps is": _kind(model),
    }


def _kind(model: nn.Module) -> str:
    """Say what a model's steps are: a buffer, a parameter, or of which type."""
    if "steps" in dict(model.named_buffers()):
        return BUFFER
    if "steps" in dict(model.named_parameters()):
        return PARAMETER
    return type(getattr(model, "steps", None)).__name__


def expected() -> dict[str, Any]:
    counted = {f"{devices} devices": STEPS for devices, _ in LAYOUTS}
    return {**counted, "x unchanged": True, "steps is": BUFFER}


def _counts(number: Callable[[int], int]) -> When:
    """Return the predicate of a mistake that counts ``number(devices)``."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return all(yours[f"{k} devices"] == number(k) for k, _ in LAYOUTS)

    return when


EXERCISE = Exercise(
    id="09-3",
    title="A counter that survives",
    answer="StepCounter",
    setup="""
        import torch
        from torch import nn
    """,
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "forward has to return x unchanged.",
            when=lambda yours, expected, n: not yours["x unchanged"],
            shown_by={"returns nothing": edit("return x", "")},
        ),
        Mistake(
            "Every device has counted: a tensor that is neither a buffer nor a parameter is not "
            "copied, so all replicas change the same one. Make it a buffer, with register_buffer.",
            when=_counts(lambda devices: STEPS * devices),
            shown_by={
                "a tensor that is no buffer": edit(
                    'self.register_buffer("steps", torch.tensor(0))', "self.steps = torch.tensor(0)"
                )
            },
        ),
        Mistake(
            "steps is a parameter: it counts, but an optimizer takes it for something to learn, "
            "and gradients are asked of it. A buffer is what a model keeps and does not learn: use "
            "register_buffer.",
            when=lambda yours, expected, n: yours["steps is"] == PARAMETER,
            shown_by={
                "a parameter": edit(
                    'self.register_buffer("steps", torch.tensor(0))',
                    "self.steps = nn.Parameter(torch.tensor(0), requires_grad=False)",
                )
            },
        ),
        Mistake(
            "steps is not a buffer. An ordinary attribute of a replica is lost with the replica: "
            "use register_buffer.",
            when=lambda yours, expected, n: yours["steps is"] != BUFFER,
            shown_by={
                "a number": edit('self.register_buffer("steps", torch.tensor(0))', "self.steps = 0")
            },
        ),
        Mistake(
            "Nothing is left of the count. self.steps = self.steps + 1 makes a new tensor, which "
            "is lost with the replica: change the buffer in place, with +=.",
            when=_counts(lambda devices: 0),
            shown_by={"a new tensor": edit("steps +=", "steps = self.steps +")},
        ),
        Mistake(
            "You count rows, of which only device 0's are kept. Count 1 per step.",
            when=_counts(lambda devices: STEPS * MINE),
            shown_by={"rows": edit("self.steps += 1", "self.steps += len(x)")},
        ),
    ),
    also_wrong={
        "forgets super": Wrong(edit("super().__init__()", ""), says="AttributeError"),
    },
    another=edit(
        'self.register_buffer("steps", torch.tensor(0))',
        "self.steps = nn.Buffer(torch.zeros(1, dtype=torch.int64))",
        "self.steps += 1",
        """
        with torch.no_grad():
            self.steps.add_(1)
        """,
    ),
    hints=(
        "What survives a step? Look at how the counter of rows was repaired.",
        "In __init__, after super().__init__(), register_buffer registers a tensor under a name; "
        "in forward, change that tensor in place.",
        'register_buffer takes "steps" and a tensor that holds a whole number. Which '
        "assignment adds 1 to that tensor, and which one makes a new tensor?",
    ),
)
