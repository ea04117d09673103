"""Numbers in the environment, as OpenMP, Slurm and a user may write them."""

from __future__ import annotations

import pytest

from labkit import UsageError
from labkit.base import variables


@pytest.mark.parametrize(
    ("text", "number"),
    [("", None), (" ", None), ("3", 3), (" 4 ", 4), ("2,1", 2), (" 8 , 4,2", 8), ("+2", 2)],
)
def test_threads_are_read_as_openmp_allows(text: str, number: int | None) -> None:
    assert variables.threads({variables.THREADS: text}) == number
    assert variables.threads({}) is None


@pytest.mark.parametrize("text", ["x", "0", "-1", "2,", ",2", "2;1", "2 1", "1.5", "²", "9" * 30])
def test_threads_that_openmp_does_not_allow_are_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        variables.threads({variables.THREADS: text})
    assert str(caught.value) == (
        "The variable OMP_NUM_THREADS must be a number of threads from 1 up, or a list of them as "
        f"in 4,2; got {text!r}."
    )


def test_a_whole_number_is_read_or_refused() -> None:
    assert variables.whole_number("N", {}) is None
    assert variables.whole_number("N", {"N": ""}) is None
    assert variables.whole_number("N", {"N": " 12 "}) == 12
    for wrong in ("0", "-3", "1e3", "²", "٣", "1_000", "9" * 5000):
        with pytest.raises(UsageError, match=r"^The variable N must be a whole number from 1 up, "):
            variables.whole_number("N", {"N": wrong})


def test_seconds_are_read_or_refused() -> None:
    assert variables.seconds("S", {}) is None
    assert variables.seconds("S", {"S": ""}) is None
    assert variables.seconds("S", {"S": " 2.5 "}) == 2.5
    assert variables.seconds("S", {"S": "inf"}) == float("inf")
    for wrong in ("soon", "nan", "-1", "1,5"):
        with pytest.raises(UsageError, match=r"^The variable S must be a number of seconds, got "):
            variables.seconds("S", {"S": wrong})


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("7", 7), ("", None), ("-1", None), ("n/a", None), ("1.0", None)]
)
def test_a_place_that_is_no_number_says_nothing(text: str, number: int | None) -> None:
    assert variables.place("SLURM_PROCID", {"SLURM_PROCID": text}) == number
    assert variables.place("SLURM_PROCID", {}) is None
