"""A score passes as any other that is good enough, and keeps what it shows on its way."""

import pickle

from labkit.course.compare import same
from labkit.course.score import Score


def test_scores_are_equal_where_they_are_good_enough() -> None:
    mine, expected = Score("at most 6 rounds", "3 rounds"), Score("at most 6 rounds")
    assert same(mine, expected)
    assert not same("9 rounds", expected)
    assert [repr(mine), repr(expected)] == ["3 rounds", "at most 6 rounds"]


def test_a_rank_sends_what_its_score_shows() -> None:
    assert repr(pickle.loads(pickle.dumps(Score("at most 6 rounds", "3 rounds")))) == "3 rounds"
