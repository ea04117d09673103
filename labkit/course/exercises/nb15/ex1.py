"""Exercise 15-1: choose the backend that PyTorch's documentation recommends for a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake

#: Device, hosts and interconnect, and the backend that PyTorch's documentation recommends.
CASES = (
    ("cuda", 1, "none", "nccl"),
    ("cuda", 4, "ethernet", "nccl"),
    ("cuda", 4, "infiniband", "nccl"),
    ("cuda", 4, "infiniband with ip", "nccl"),
    ("cpu", 1, "none", "gloo"),
    ("cpu", 4, "ethernet", "gloo"),
    ("cpu", 4, "infiniband with ip", "gloo"),
    ("cpu", 4, "infiniband", "mpi"),
)


def trial(answer: Callable[[str, int, str], str], here: Here) -> list[str]:
    """Ask for the backend in each case."""
    return [answer(device, hosts, link) for device, hosts, link, _ in CASES]


def expected() -> list[str]:
    """Return the documentation's choice in each case."""
    return [backend for *_, backend in CASES]


def _chose(yours: Any, backend: str, **where: str) -> bool:
    """Tell whether an answer chose a backend in some case with this device and interconnect."""
    if not isinstance(yours, list) or len(yours) != len(CASES):
        return False
    return any(
        chosen == backend
        and case[0] == where["device"]
        and case[2] in where.get("link", case[2]).split(" | ")
        for chosen, case in zip(yours, CASES, strict=True)
    )


EXERCISE = Exercise(
    id="15-1",
    title="Choose a backend",
    answer="choose_backend",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "NCCL moves tensors between NVIDIA GPUs only; on CPUs it cannot be used.",
            when=lambda yours, expected, n: _chose(yours, "nccl", device="cpu"),
            shown_by={"takes NCCL everywhere": body('return "nccl"')},
        ),
        Mistake(
            "On GPUs NCCL is the first choice over Ethernet too; gloo is what you fall back "
            "to when NCCL gives trouble.",
            when=lambda yours, expected, n: _chose(yours, "gloo", device="cuda"),
            shown_by={
                "takes gloo over Ethernet": body("""
                    if interconnect == "ethernet" or device == "cpu":
                        return "gloo"
                    return "nccl"
                """),
            },
        ),
        Mistake(
            "On GPUs NCCL speaks InfiniBand by itself: no MPI is needed.",
            when=lambda yours, expected, n: _chose(yours, "mpi", device="cuda"),
            shown_by={
                "takes MPI over InfiniBand": body("""
                    if interconnect.startswith("infiniband"):
                        return "mpi"
                    return "nccl" if device == "cuda" else "gloo"
                """),
            },
        ),
        Mistake(
            "Where InfiniBand carries IP, gloo can use it: MPI is for InfiniBand without IP.",
            when=lambda yours, expected, n: _chose(
                yours, "mpi", device="cpu", link="none | ethernet | infiniband with ip"
            ),
            shown_by={
                "takes MPI although there is IP": edit(
                    'interconnect == "infiniband"', '"infiniband" in interconnect'
                )
            },
        ),
        Mistake(
            "Gloo talks over IP only: on CPU hosts whose InfiniBand has none, MPI is left.",
            when=lambda yours, expected, n: _chose(yours, "gloo", device="cpu", link="infiniband"),
            shown_by={
                "knows two backends only": body('return "nccl" if device == "cuda" else "gloo"')
            },
        ),
    ),
    another=body("""
        without_ip = interconnect == "infiniband"
        return {"cuda": "nccl", "cpu": "mpi" if without_ip else "gloo"}[device]
    """),
    hints=(
        "Ask for the device first: on one of the two, nothing else matters.",
        "On CPUs it is gloo, but for one kind of network.",
        'cuda: "nccl". cpu: "mpi" if interconnect == "infiniband", else "gloo".',
    ),
)
