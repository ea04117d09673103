"""The table of ranks, as text and as HTML."""

import dataclasses
from html import escape
from html.parser import HTMLParser

import pytest

from labkit.notebook.board import Table
from labkit.wire.state import RankState

STATES = [
    RankState(0, "a", 11, "cuda:0", "nccl", "idle"),
    RankState(1, "b<", 2222, "cuda:1", "nccl", "running", "In[3], line 2", "x < y"),
]


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.texts = []

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data)


def test_columns_line_up():
    head, *rows = repr(Table(STATES)).splitlines()
    assert len(rows) == 2
    for column, name in enumerate(Table.HEAD):
        start = head.index(name)
        assert [row[start:].split("  ")[0] for row in rows] == [
            line[column] for line in Table(STATES).rows()[1:]
        ]


def test_how_a_cell_has_ended_the_group_is_a_note_once():
    left = "In[2] ended the lab's process group; lab.reset() forms it again."
    states = [dataclasses.replace(state, left=left) for state in STATES]
    assert Table(states, ["first"]).notes == ["first", left]
    assert repr(Table(states)).splitlines()[-1] == left
    assert f"<p>{escape(left)}</p>" in Table(states).to_html()


def test_html_says_the_same_and_escapes():
    parser = Cells()
    parser.feed(Table(STATES).to_html())
    assert parser.texts == [text for row in Table(STATES).rows() for text in row]


def test_a_running_rank_shows_where():
    assert Table(STATES).rows()[2][-1] == "running In[3], line 2: x < y"


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"state": "idle"}, "idle"),
        ({"state": "running"}, "running"),
        ({"state": "running", "where": "train, line 4"}, "running train, line 4"),
        ({"state": "waiting", "detail": "recv from rank 1"}, "waiting in recv from rank 1"),
        (
            {
                "state": "waiting",
                "detail": "barrier (collective 2)",
                "seconds": 3.4,
                "where": "In[1], line 2",
                "line": "dist.barrier()",
            },
            "waiting in barrier (collective 2), for 3 s at In[1], line 2: dist.barrier()",
        ),
        ({"state": "no answer"}, "no answer"),
        ({"state": "no answer", "detail": "stopped"}, "no answer (stopped)"),
        ({"state": "dead", "detail": "signal 9 (SIGKILL)"}, "dead: signal 9 (SIGKILL)"),
    ],
)
def test_what_a_rank_does_in_words(about, text):
    assert RankState(0, "a", 1, "cpu", "gloo", **about).describe() == text


def test_it_is_a_sequence():
    assert [s.rank for s in Table(STATES)] == [0, 1]
    assert Table(STATES)[1].pid == 2222
