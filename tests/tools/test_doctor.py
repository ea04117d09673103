"""What the doctor finds on this machine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.launch import placement
from labkit.tools.doctor import examine, software
from labkit.tools.doctor.software import Finding
from labkit.wire.encoding import decode
from labkit.wire.state import ProcessFacts


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """What torch finds on this machine."""
    return software.torch_facts()


def finding(findings: list[Finding], topic: str) -> Finding:
    return next(f for f in findings if f.topic == topic)


def test_this_machine_can_run_the_course() -> None:
    looked_at: list[str] = []
    findings = examine.examine(looked_at.append)
    assert [f for f in findings if f.state == "problem"] == []
    assert looked_at == ["packages", "torch and GPUs", "machine"]
    assert finding(findings, "torch").text.startswith(torch.__version__)


def test_the_facts_are_those_of_this_torch(here: dict[str, Any]) -> None:
    assert here["torch"] == torch.__version__
    assert len(here["gpus"]) == len(here["place"]["gpus"]) <= torch.cuda.device_count()
    assert here["gloo"] is True


def test_what_the_ranks_get_is_what_placement_says(here: dict[str, Any]) -> None:
    process = decode(ProcessFacts, here["place"])
    place = placement.place_ranks(dict.fromkeys(range(software.RANKS), process))[0]
    text = finding(software.check_torch(here), "ranks").text
    assert place.device in text
    assert text.split("backend ")[1].startswith(place.backend)
