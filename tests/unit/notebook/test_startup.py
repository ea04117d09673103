"""How many ranks ``labkit.start`` may be asked for."""

from __future__ import annotations

import pytest

import labkit
from labkit.notebook import startup


def test_the_most_ranks_that_a_user_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_MAX_RANKS", "3")
    assert startup.check_most(3) == startup.check_most(None) == 3
    with pytest.raises(labkit.StartError) as caught:
        labkit.start(4)
    assert str(caught.value) == (
        "4 ranks are more than the 3 that LABKIT_MAX_RANKS allows here; "
        "labkit.start(3) starts as many."
    )


def test_it_holds_for_what_replaces_the_notebooks_number_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABKIT_MAX_RANKS", "3")
    monkeypatch.setenv("LABKIT_RANKS", "5")
    with pytest.raises(labkit.StartError, match=r"^5 ranks are more than the 3 that"):
        labkit.start(2)


@pytest.mark.parametrize("given", ["", None])
def test_without_the_variable_there_is_no_such_limit(
    monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv("LABKIT_MAX_RANKS", raising=False)
    if given is not None:
        monkeypatch.setenv("LABKIT_MAX_RANKS", given)
    assert startup.check_most(1_000_000) == startup.MAX_RANKS


@pytest.mark.parametrize("given", ["0", "four", "-1"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LABKIT_MAX_RANKS", given)
    with pytest.raises(labkit.UsageError, match="LABKIT_MAX_RANKS must be a whole number from 1"):
        labkit.start(1)
