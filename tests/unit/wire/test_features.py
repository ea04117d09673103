"""What is said of a feature that is off."""

from __future__ import annotations

from importlib.metadata import version

from labkit.notebook.board import Table
from labkit.wire.state import Feature, Missing, find_missing, sentences

FEATURES = {
    "fly": Feature(("wings", "tail", "feathers"), "nothing flies"),
    "swim": Feature(("fins",), "nothing swims", needed=True),
}


def test_a_sentence_names_the_library_the_names_and_the_loss() -> None:
    assert str(Missing("bird 2", ("wings",), "nothing flies")) == (
        "bird 2 hides wings: nothing flies."
    )
    assert str(Missing("bird 2", ("wings", "tail", "feathers"), "nothing flies")) == (
        "bird 2 hides wings, tail and feathers: nothing flies."
    )


def test_all_that_is_there_is_no_loss() -> None:
    assert find_missing("pytest", FEATURES, lambda name: True) == {}


def test_only_the_names_that_are_gone_are_named() -> None:
    missing = find_missing("pytest", FEATURES, lambda name: name not in ("tail", "fins"))
    library = f"pytest {version('pytest')}"
    assert missing == {
        "fly": Missing(library, ("tail",), "nothing flies", feature="fly"),
        "swim": Missing(library, ("fins",), "nothing swims", needed=True, feature="swim"),
    }


def test_what_every_rank_misses_is_said_once() -> None:
    one, other = (Missing("bird 2", (name,), "nothing flies") for name in ("wings", "tail"))
    assert sentences([one, other, one]) == [str(one), str(other)]


def test_the_table_of_the_ranks_ends_with_it() -> None:
    table = Table([], ["a < b"])
    assert repr(table).splitlines()[-1] == "a < b"
    assert table.to_html().endswith("<p>a &lt; b</p>")
