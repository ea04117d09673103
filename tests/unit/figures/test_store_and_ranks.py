"""The drawing of a rendezvous names store, addresses and connections."""

import pytest
from matplotlib.patches import FancyArrowPatch

from labkit.errors import UsageError
from labkit.figures import store_and_ranks as drawing
from labkit.figures.store_and_ranks import rendezvous

from .drawn import check_words, draw, words


def test_the_text_counts_connections_and_has_no_address():
    picture = rendezvous(3, store="10.0.0.7:29500", addresses=["a:1", "b:2", "c:3"])
    assert "3. rank to rank: 3 connections" in picture.text
    assert "29500" not in picture.text
    assert "3. rank to rank: 1 connection\n" in rendezvous(2).text
    agent = rendezvous(2, served_by="torchrun's agent", how_to_read="")
    assert agent.text.startswith("Rendezvous of 2 ranks; torchrun's agent serves the store.")


def test_the_picture_shows_what_is_in_the_store(monkeypatch):
    told = ["127.0.0.1:37477", "127.0.0.1:45157"]
    figure = draw(
        monkeypatch, drawing, lambda: rendezvous(2, store="127.0.0.1:29500", addresses=told)
    )
    shown = [text.get_text() for text in words(figure)]
    assert {*told, "store at 127.0.0.1:29500", "served by rank 0"} <= set(shown)


@pytest.mark.parametrize(("n", "said"), [(2, "1 connection"), (4, "6 connections")])
def test_the_picture_says_how_many_lines_it_has_between_ranks(monkeypatch, n, said):
    figure = draw(monkeypatch, drawing, lambda: rendezvous(n))
    assert f"3  rank to rank: {said}" in [text.get_text() for text in words(figure)]
    to_the_store_and_back = 2 * n
    lines = len(figure.findobj(FancyArrowPatch)) - to_the_store_and_back
    assert said.split()[0] == str(lines)


@pytest.mark.parametrize("n", range(2, 6))
def test_all_words_can_be_read(monkeypatch, n):
    told = [f"192.168.100.{200 + rank}:65535" for rank in range(n)]
    check_words(draw(monkeypatch, drawing, lambda: rendezvous(n, addresses=told)))


@pytest.mark.parametrize("n", [1, 6])
def test_numbers_of_ranks_that_cannot_be_drawn_are_refused(n):
    with pytest.raises(UsageError, match=f"2 to 5 ranks, not {n}"):
        rendezvous(n)


def test_addresses_are_one_per_rank():
    with pytest.raises(UsageError, match="addresses has 1 entries for 2 ranks"):
        rendezvous(2, addresses=["127.0.0.1:1"])
