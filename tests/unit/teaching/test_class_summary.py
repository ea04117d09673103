"""A class is summed up: who is where, what takes most tries, which mistakes are named most."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from labkit.course import catalogue
from labkit.course.progress import Entry
from labkit.teaching import class_summary
from labkit.teaching.learners import Learner

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
KNOWN = catalogue.find("00-1").mistakes[0].sentence


def learner(name: str, **entries: Any) -> Learner:
    """Return a learner with entries by id: ``e00_1=…``."""
    return Learner(name, "00", {id[1:].replace("_", "-"): entry for id, entry in entries.items()})


def test_who_is_where() -> None:
    ada = learner(
        "ada",
        e00_1=Entry(passed=True, tries=2, hints=1, minutes=1.4, last=NOON),
        e00_2=Entry(tries=1, solution=True, minutes=2.2, last=NOON.replace(hour=13)),
    )
    (row,) = class_summary.who_is_where([ada]).rows
    seen = f"{NOON.replace(hour=13).astimezone():%Y-%m-%d %H:%M}"
    assert row == ("ada", "00-2, 1 try", "1", "3", "1", "1", "4", seen)
    undated = learner("bob", e00_1=Entry(passed=True))
    assert class_summary.who_is_where([undated]).rows[0][:2] == ("bob", "notebook 00")


def test_one_learner_does_not_decide_what_is_hard() -> None:
    many = [learner(f"l{i}", e00_1=Entry(tries=3), e00_2=Entry(tries=2)) for i in range(4)]
    one = learner("x", e00_1=Entry(tries=1), e00_2=Entry(tries=9999), e00_3=Entry(tries=9999))
    rows = class_summary.most_tries([*many, one]).rows
    assert [row[0][:4] for row in rows] == ["00-1", "00-2"]
    assert rows[0][1:4] == ("3", "3", "0 of 5")
    assert class_summary.most_tries([one]).rows[0][1] == "9999"  # nobody to compare with


def test_mistakes_are_the_course_s_own_sentences() -> None:
    forged = "<b>look here</b>"
    class_ = [
        learner("a", e00_1=Entry(tries=9, mistakes={KNOWN: 2, forged: 9}), emine=Entry(tries=9)),
        learner("b", e00_1=Entry(tries=9, mistakes={KNOWN: 1, forged: 1})),
        learner("c", emy1=Entry(tries=5, mistakes={"alone": 5, "shared": 1})),
        learner("d", emy1=Entry(tries=5, mistakes={"shared": 99})),
    ]
    rows = class_summary.most_named(class_).rows
    assert rows == [("my1", "2", "6", "shared"), ("00-1", "2", "3", KNOWN)]


def test_nothing_known_is_said_apart() -> None:
    without = Learner("bob", problem="There is no progress.json yet.")
    sections = class_summary.sections([without])
    assert [section.rows for section in sections[:3]] == [[], [], []]
    assert sections[3].rows == [("bob", "There is no progress.json yet.")]
    assert class_summary.headline([without]) == "1 learner, 0 with progress."
    ada = learner("ada", e00_1=Entry(passed=True, tries=1))
    assert len(class_summary.sections([ada])) == 3
    assert class_summary.headline([ada, ada, without]) == (
        "3 learners, 2 with progress. Half of them have passed 1 exercise or more. "
        "Passed in all: 2."
    )
