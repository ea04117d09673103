"""Folding and labelling of outputs, without any rank."""

import pytest

from labkit import display
from labkit.running import Outcome


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([0], "rank 0"),
        ([0, 1, 2, 3], "ranks 0–3"),
        ([3, 0], "ranks 0, 3"),
        ([0, 2, 3, 5, 6, 7, 9], "ranks 0, 2–3, 5–7, 9"),
    ],
)
def test_label(ranks, text):
    assert display.label(ranks) == text


def test_fold_keeps_the_order_of_first_ranks():
    assert display.fold({2: "b", 0: "a", 1: "b", 3: "a"}) == [([0, 3], "a"), ([1, 2], "b")]


def plain(text):
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_show_writes_streams_then_results_in_rank_order(capsys):
    outcomes = [
        Outcome(0, stdout="hello\n", result={"text/plain": "0"}),
        Outcome(1, stdout="hello\n", stderr="careful\n", result={"text/plain": "1"}),
        Outcome(2, stdout="one\ntwo\n", result={"text/plain": "0"}),
    ]
    display.show(outcomes)
    out, err = (plain(text) for text in capsys.readouterr())
    assert out == "ranks 0–1: hello\nrank 2:\n  one\n  two\nranks 0, 2: 0\nrank 1: 1\n"
    assert err == "rank 1: careful\n"


def test_silent_ranks_say_nothing(capsys):
    display.show([Outcome(0), Outcome(1)])
    assert capsys.readouterr() == ("", "")


def test_equal_errors_are_one():
    same = ("ValueError", "no", ["ValueError: no", "  In[1], line 2"])
    other = ("KeyError", "'k'", ["KeyError: 'k'"])
    summary, blocks = display.error_texts({0: same, 1: other, 2: same})
    assert summary == "ranks 0, 2: ValueError: no\nrank 1: KeyError: 'k'"
    assert [plain(b) for b in blocks] == [
        "ranks 0, 2: ValueError: no\n  In[1], line 2",
        "rank 1: KeyError: 'k'",
    ]


def test_a_notice_shows_what_is_new_and_goes(monkeypatch, capsys):
    cleared = []
    monkeypatch.setattr("IPython.display.clear_output", lambda wait: cleared.append(wait))
    monkeypatch.setattr(display, "NOTICE_SECONDS", 0.0)
    monkeypatch.delenv(display.LIVE, raising=False)
    notice = display.Notice()
    for text in ("", "rank 0: waiting\n", "rank 0: waiting\n", "rank 1: waiting\n"):
        notice.offer(lambda text=text: text)
    assert capsys.readouterr().out == "rank 0: waiting\nrank 1: waiting\n"
    assert len(cleared) == 2  # before each that is shown
    notice.clear()
    assert len(cleared) == 3


def test_a_notice_comes_late_and_never_where_nobody_looks_on(monkeypatch, capsys):
    notice = display.Notice()
    notice.offer(lambda: "too early")
    monkeypatch.setattr(display, "NOTICE_SECONDS", 0.0)
    monkeypatch.setenv(display.LIVE, "0")
    display.Notice().offer(lambda: "nobody looks on")
    assert capsys.readouterr().out == ""
