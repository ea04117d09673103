"""A log holds all that a verdict rests on: judged again, it says the same."""

from __future__ import annotations

import logging
import sys

import pytest

from labkit.deadlock import replay
from labkit.deadlock.needs import Situation
from labkit.deadlock.wait_graph import judge
from labkit.wire.encoding import ProtocolError
from labkit.wire.samples import Entry, Group, Issuer, Sample, Wait

KEY = ("0", (0, 1, 2))
GROUP = Group(
    KEY,
    3,
    {3: Entry(3, "all_reduce", ((4,), (2, 2)), ("Float", "Float"), False)},
    {("send", 1, 0): 2},
    0,
    dropped=frozenset({("send", 1, 0, 2)}),
)
THREAD = Issuer("a thread of rank {rank} is alive: {job}", Wait("thread"))


def sample(rank: int, **named: object) -> Sample:
    wait = Wait("collective", ((KEY, 3),), where="In[7], line 3")
    return Sample(rank, "waiting", True, wait, (5, 6), {KEY: GROUP}, **named)


SITUATION = Situation(
    3,
    {0: Sample(0, "idle", issuers=(Issuer("{rank} ticks"),)), 1: sample(1, issuers=(THREAD,))},
    gone=frozenset({0, 2}),
    dead=frozenset({2}),
    outside=("a thread of this notebook",),
)


def test_a_situation_comes_back_from_a_line_of_a_log_as_it_was():
    line = f"2026-11-22 10:00:00.000 17 labkit: {replay.MARK}{replay.Written(SITUATION)}\n"
    ((head, found),) = replay.read(["something else\n", line])
    assert found == SITUATION
    assert judge(found) == judge(SITUATION)
    assert head.startswith("2026-11-22")


def test_every_verdict_of_a_file_is_told_again_with_what_each_wait_needed(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "labkit.log"
    path.write_text(f"12:00 {replay.MARK}{replay.Written(SITUATION)}\n12:01 more\n")
    monkeypatch.setattr(sys, "argv", ["replay", str(path)])
    replay.main()
    told = capsys.readouterr().out
    assert told.startswith("12:00 proved [1], suspected [1]")
    assert "rank 1 is waiting, still" in told
    assert "main thread: waits in all_reduce (2 tensors, collective 3)" in told
    assert "missing=frozenset({0, 2})" in told
    assert "a thread of rank 1 is alive: {job}: waits" in told
    assert "0 ticks: is free" in told


def test_a_log_of_another_version_is_refused():
    with pytest.raises(ProtocolError, match="missing required field"):
        list(replay.read([f'{replay.MARK}{{"size":3}}']))


def test_nothing_is_put_together_unless_a_log_wants_it():
    logger = logging.getLogger("labkit.test_replay")
    logger.setLevel(logging.INFO)
    logger.debug("%s%s", replay.MARK, replay.Written(None))  # type: ignore[arg-type]
