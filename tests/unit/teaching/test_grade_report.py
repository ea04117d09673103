"""How grades are written down."""

from __future__ import annotations

import csv
import json
from xml.etree import ElementTree

from labkit.teaching import grade_report
from labkit.teaching.grade import Grade
from labkit.teaching.judge_answers import Mark
from labkit.teaching.sandbox import Walls

RIGHT, WRONG = Mark(True, "passed"), Mark(False, "different", "Rank 1 differs: <b> & co.")
GRADES = [
    Grade("ada", "00_start_here.ipynb", {"00-1": RIGHT, "00-2": RIGHT}, [], 3.14, 1 << 30),
    Grade("ada", "01_point_to_point.ipynb", {"01-1": RIGHT}),
    Grade("bo", "00_start_here.ipynb", {"00-1": WRONG, "00-2": RIGHT}, ["cell 3 failed"]),
    Grade("bo", "01_point_to_point.ipynb", {"01-1": Mark(False)}),
]  # fmt: skip


def test_a_line_per_home() -> None:
    assert grade_report.lines(GRADES) == ["ada  00: 2/2  01: 1/1", "bo   00: 1/2  01: 0/1"]


def test_what_is_open_is_said() -> None:
    assert grade_report.reasons(GRADES) == [f"bo 00-1: {WRONG.sentence}", "bo 01-1: not tried"]


def test_json_has_all() -> None:
    said = json.loads(grade_report.as_json(GRADES, Walls(True, True)))
    assert [home["home"] for home in said["homes"]] == ["ada", "bo"]
    first = said["homes"][0]["notebooks"][0]
    assert (first["passed"], first["seconds"], first["memory_mib"]) == (2, 3.1, 1024)
    bo = said["homes"][1]["notebooks"][0]
    assert bo["exercises"]["00-1"]["sentence"] == WRONG.sentence
    assert bo["notes"] == ["cell 3 failed"]


def test_csv_has_a_row_per_exercise_and_no_text_of_a_learner() -> None:
    rows = list(csv.DictReader(grade_report.as_csv(GRADES).splitlines()))
    assert [(row["home"], row["exercise"], row["passed"]) for row in rows] == [
        ("ada", "00-1", "1"), ("ada", "00-2", "1"), ("ada", "01-1", "1"),
        ("bo", "00-1", "0"), ("bo", "00-2", "1"), ("bo", "01-1", "0"),
    ]  # fmt: skip
    assert "Rank" not in grade_report.as_csv(GRADES)


def test_junit_has_a_suite_per_home() -> None:
    root = ElementTree.fromstring(grade_report.as_junit(GRADES))
    suites = [(s.get("name"), s.get("tests"), s.get("failures")) for s in root]
    assert suites == [("ada", "3", "0"), ("bo", "3", "2")]
    failed = root.find("testsuite/testcase/failure")
    assert failed is not None
    assert failed.get("message") == WRONG.sentence
    (case, *_) = root[1]
    assert (case.get("classname"), case.get("name")) == ("00_start_here", "00-1")
