"""The table of ranks, as text and as HTML."""

from html.parser import HTMLParser

from labkit.status import RankState, Table

STATES = [
    RankState(0, "a", 11, "cuda:0", "nccl", "idle"),
    RankState(1, "b<", 2222, "cuda:1", "nccl", "busy", "In[3], line 2: x < y"),
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


def test_html_says_the_same_and_escapes():
    parser = Cells()
    parser.feed(Table(STATES).to_html())
    assert parser.texts == [text for row in Table(STATES).rows() for text in row]


def test_a_busy_rank_shows_where():
    assert Table(STATES).rows()[2][-1] == "busy, In[3], line 2: x < y"


def test_it_is_a_sequence():
    assert [s.rank for s in Table(STATES)] == [0, 1]
    assert Table(STATES)[1].pid == 2222
