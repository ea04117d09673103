"""Exercise 15-4: read the text of a backend as init_process_group does: one for each device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.distributed_c10d import BackendConfig

from ...answers import body
from ...exercise import Exercise, Here, Mistake

#: What is asked of 15-4: a backend as init_process_group takes it, and a kind of device.
ASKED = (
    ("gloo", "cpu"),
    ("gloo", "cuda"),
    ("nccl", "cuda"),
    ("nccl", "cpu"),
    ("cpu:gloo,cuda:nccl", "cpu"),
    ("cpu:gloo,cuda:nccl", "cuda"),
    ("cuda:nccl", "cpu"),
)


def trial(answer: Callable[[str, str], str | None], here: Here) -> list[str | None]:
    """Ask for the backend of each device."""
    return [answer(text, device) for text, device in ASKED]


def expected() -> list[str | None]:
    """Ask PyTorch's own reader of such texts."""
    found = [BackendConfig(text).get_device_backend_map().get(device) for text, device in ASKED]
    return [None if backend is None else str(backend) for backend in found]


def _served(yours: Any, text: str, device: str, backend: str | None) -> bool:
    """Tell whether an answer gave ``backend`` in one case."""
    return isinstance(yours, list) and yours[ASKED.index((text, device))] == backend


EXERCISE = Exercise(
    id="15-4",
    title="Read a backend's text",
    answer="backend_for",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "A plain name has no colon to cut at: it stands for every kind of device that the "
            "backend serves.",
            raises=r"not enough values to unpack|dictionary update sequence element|"
            r"list index out of range[\s\S]*split",
            shown_by={
                "knows pairs only": body(
                    'return dict(pair.split(":") for pair in text.split(",")).get(device)'
                )
            },
        ),
        Mistake(
            "There need not be a pair for the device: then the answer is None, as from dict.get.",
            raises=r"^KeyError: '(cpu|cuda)'",
            shown_by={
                "insists on a pair": body("""
                    if ":" not in text:
                        return None if (text, device) == ("nccl", "cpu") else text
                    return dict(pair.split(":") for pair in text.split(","))[device]
                """),
            },
        ),
        Mistake(
            "NCCL serves GPUs only: a plain nccl leaves CPU tensors without a backend.",
            when=lambda yours, expected, n: _served(yours, "nccl", "cpu", "nccl"),
            shown_by={
                "takes a plain name for everything": body("""
                    if ":" not in text:
                        return text
                    return dict(pair.split(":") for pair in text.split(",")).get(device)
                """),
            },
        ),
        Mistake(
            "gloo serves GPU tensors too, if slowly: a plain gloo stands for both.",
            when=lambda yours, expected, n: _served(yours, "gloo", "cuda", None),
            shown_by={
                "keeps gloo on the CPU": body("""
                    if ":" not in text:
                        text = {"gloo": "cpu:gloo", "nccl": "cuda:nccl"}[text]
                    return dict(pair.split(":") for pair in text.split(",")).get(device)
                """),
            },
        ),
        Mistake(
            "You take one pair for every device: look for the pair that begins with it.",
            when=lambda yours, expected, n: (
                _served(yours, "cpu:gloo,cuda:nccl", "cuda", "gloo")
                or _served(yours, "cpu:gloo,cuda:nccl", "cpu", "nccl")
            ),
            shown_by={
                "takes the first pair": body("""
                    if ":" not in text:
                        return None if (text, device) == ("nccl", "cpu") else text
                    return text.split(",")[0].split(":")[1]
                """),
            },
        ),
    ),
    another=body("""
        long = {"gloo": "cpu:gloo,cuda:gloo", "nccl": "cuda:nccl"}.get(text, text)
        for pair in long.split(","):
            kind, _, backend = pair.partition(":")
            if kind == device:
                return backend
        return None
    """),
    hints=(
        "There are two kinds of text: with a colon, and without one.",
        'Cut pairs apart with split(","), and each pair with split(":"). Without a colon, '
        "ask whether the backend serves the device.",
        'With a colon: dict(pair.split(":") for pair in text.split(",")).get(device). Without: '
        'text, or None for ("nccl", "cpu").',
    ),
)
