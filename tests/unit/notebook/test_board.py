"""How the board of ranks, their live output and the table of the status look to a reader."""

from __future__ import annotations

import dataclasses
import re
from html import escape
from html.parser import HTMLParser

import pytest

from labkit.base import times
from labkit.deadlock.case import Case
from labkit.deadlock.exit_reason import ENDED
from labkit.deadlock.needs import Situation
from labkit.notebook import board
from labkit.notebook.board import Table
from labkit.runtime.watchdog import Suspicion
from labkit.wire.samples import Group, Sample, Wait
from labkit.wire.state import Gpu, RankState
from tests.support.virtual_clock import VirtualClock


def state(rank, what="running", **about):
    return RankState(rank, "host", 1, "cpu", "gloo", what, **about)


def text_of(html):
    """Return what a reader sees of some HTML; fail if it has a script or is not well nested."""
    seen, stack = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            assert tag != "script"
            assert not any(name.startswith("on") for name, _ in attributes)
            if tag != "img":  # it has no end
                stack.append(tag)

        def handle_endtag(self, tag):
            assert stack.pop() == tag

        def handle_data(self, data):
            seen.append(data)

    reader = Reader()
    reader.feed(html)
    reader.close()
    assert stack == []
    return "".join(seen)


def test_ranks_that_print_the_same_share_a_block_though_some_are_ahead():
    html = board.output_html({0: "a\nb\nc\n", 1: "a\n", 2: "a\nb\n", 3: "other\n"}, {})
    assert text_of(html) == "ranks 0–2:\n  a\n  b\n  crank 3: other"


def test_of_much_output_the_end_is_shown_with_a_count():
    out = {rank: "".join(f"{rank}<{i}>\n" for i in range(1000)) for rank in range(4)}
    text = text_of(board.output_html(out, {}))
    assert text.count("… 994 lines above") == 4
    assert "3<999>" in text
    assert "3<993>" not in text


def test_of_sixteen_ranks_each_has_one_line():
    out = {rank: f"first\nrank {rank} last\n" for rank in range(16)}
    text = text_of(board.output_html(out, {}))
    assert [f"rank {rank} (line 2): rank {rank} last" in text for rank in range(16)] == [True] * 16
    assert "first" not in text


def test_counts_stay_right_in_long_texts():
    line = "x" * 99 + "\n"
    text = text_of(board.output_html({0: line * 1000}, {}))
    assert f"… {1000 - board.LINES} lines above" in text


def test_the_board_has_a_line_a_rank():
    states = [
        state(0, where="In[1], line 2", line="a < b", memory=31 * 2**20),
        state(1, "waiting", detail="barrier (collective 1)", seconds=3.2),
        state(2, "idle", memory=3 * 2**30, gpu=Gpu(2**30, 80 * 2**30, 57)),
        state(3, "no answer", detail="stopped", gpu=Gpu(2**30, 80 * 2**30)),
    ]
    text = text_of(board.board_html(states, 67))
    assert text.startswith("1:07 · rank 0 running, rank 1 waiting, rank 2 idle, rank 3 no answer")
    for part in (
        "▶ rank 0runningIn[1], line 2: a < b31 MiB",
        "Ⅱ rank 1waiting 3 sbarrier (collective 1)",
        "○ rank 2idle3.0 GiB  GPU 1.0 GiB of 80.0 GiB 57 %",
        "✕ rank 3no answerstoppedGPU 1.0 GiB of 80.0 GiB",
    ):
        assert part in text


def test_ranks_that_came_together_have_waited_for_the_same_time():
    states = [state(r, "waiting", detail="barrier", seconds=s) for r, s in enumerate((1.4, 1.6, 4))]
    text = text_of(board.board_html(states, 9))
    assert re.findall(r"waiting (\d) s", text) == ["1", "2", "4"]
    text = text_of(board.board_html(states[:2], 9))
    assert re.findall(r"waiting (\d) s", text) == ["2", "2"]


def test_one_line_above_is_one_line():
    text = text_of(board.output_html({0: "x\n" * (board.LINES + 1)}, {}))
    assert "… 1 line above" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.9, "0:59"), (3600, "1:00:00"), (3723, "1:02:03")]
)
def test_clock(seconds, text):
    assert board.clock(seconds) == text


# -- what is suspected ----------------------------------------------------------------------------


def suspicion(seconds, *doubts):
    """Rank 1 has were blocked for rank 0, it seems, for some seconds."""
    key = ("0", (0, 1))
    wait = Wait("recv", ((key, 1),), peer=0)
    known = {
        0: Sample(0, "idle"),
        1: Sample(1, "waiting", True, wait, groups={key: Group(key, 0, {}, {}, 0)}),
    }
    situation = Situation(2, known, frozenset({0}))
    case = Case(situation, frozenset({1}), {0: ENDED}, doubts)
    return Suspicion(case, -seconds, VirtualClock())


SEEMS = "rank 1 waits for rank 0, which has ended its cell."


def test_nothing_is_said_where_nothing_is_suspected():
    assert board.suspicion_html(None) == ""


def test_a_new_suspicion_says_who_waits_and_what_may_come():
    html = board.suspicion_html(suspicion(2, "a <thread> is alive", "a task is under way"))
    assert text_of(html).split("\n") == [
        f"Suspected for 2 s: {SEEMS}",
        "It may still go on: a <thread> is alive.",
        "It may still go on: a task is under way.",
    ]


def test_after_a_while_it_offers_the_stop_button_and_the_likely_cause():
    text = text_of(board.suspicion_html(suspicion(times.STOP_OFFERED + 1, "a thread is alive")))
    assert text.startswith(f"Suspected for 6 s: {SEEMS}")
    last = text.split("\n")[-2:]
    assert last[0].startswith("If not: Every send needs one receive")
    assert last[1] == "The stop button (■) ends the cell."


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
