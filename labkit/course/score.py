"""Show how good a result is where anything good enough passes: an exercise with a score to beat."""

from __future__ import annotations


class Score(str):
    """A result that is good enough: equal to any other such, and shown as how good it is.

    >>> Score("at most 6 rounds", "3 rounds") == Score("at most 6 rounds")
    True
    >>> Score("at most 6 rounds", "3 rounds")
    3 rounds
    >>> Score("at most 6 rounds")
    at most 6 rounds

    Parameters
    ----------
    good
        What is asked for.
    shown
        What was reached; by default what is asked for, as in the expected result.
    """

    shown: str

    def __new__(cls, good: str, shown: str = "") -> Score:
        score = super().__new__(cls, good)
        score.shown = shown or good
        return score

    def __repr__(self) -> str:
        return self.shown
