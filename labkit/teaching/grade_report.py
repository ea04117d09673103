"""Write grades down: a line per home, JSON, CSV, and JUnit's XML."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from .grade import Grade
from .sandbox import Walls


def by_home(grades: Sequence[Grade]) -> dict[str, list[Grade]]:
    """Return the grades of each home."""
    homes: dict[str, list[Grade]] = {}
    for grade in grades:
        homes.setdefault(grade.home, []).append(grade)
    return homes


def lines(grades: Sequence[Grade]) -> list[str]:
    """Return one line per home: ``ada  00: 4/4  01: 5/6``."""
    homes = by_home(grades)
    width = max(map(len, homes), default=0)
    return [
        "  ".join([home.ljust(width), *(f"{g.number}: {g.passed}/{len(g.marks)}" for g in own)])
        for home, own in homes.items()
    ]


def reasons(grades: Sequence[Grade]) -> list[str]:
    """Return one line per exercise that is open: what was said of it."""
    return [
        f"{grade.home} {name}: {mark.sentence or mark.verdict}"
        for grade in grades
        for name, mark in grade.marks.items()
        if not mark.passed
    ]


def as_json(grades: Sequence[Grade], walls: Walls) -> str:
    """Return all that is known, as JSON."""
    homes = [
        {"home": home, "notebooks": [_notebook(grade) for grade in own]}
        for home, own in by_home(grades).items()
    ]
    return json.dumps({"version": 1, "sandbox": str(walls), "homes": homes}, indent=1)


def _notebook(grade: Grade) -> dict[str, Any]:
    return {
        "notebook": grade.notebook,
        "passed": grade.passed,
        "exercises": {
            name: {"passed": mark.passed, "verdict": mark.verdict, "sentence": mark.sentence}
            for name, mark in grade.marks.items()
        },
        "notes": grade.notes,
        "seconds": round(grade.seconds, 1),
        "memory_mib": grade.memory >> 20,
    }


def as_csv(grades: Sequence[Grade]) -> str:
    """Return a row per home and exercise. No column has text that a learner could have chosen, but
    for the name of the home: a spreadsheet may take text for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["home", "notebook", "exercise", "passed"])
    for grade in grades:
        for name, mark in grade.marks.items():
            writer.writerow([grade.home, grade.notebook, name, int(mark.passed)])
    return text.getvalue()


def as_junit(grades: Sequence[Grade]) -> bytes:
    """Return JUnit's XML: a suite per home, a test per exercise."""
    root = ElementTree.Element("testsuites", name="labkit grade")
    for home, own in by_home(grades).items():
        marks = [mark for grade in own for mark in grade.marks.values()]
        failures = str(sum(not mark.passed for mark in marks))
        suite = ElementTree.SubElement(
            root, "testsuite", name=home, tests=str(len(marks)), failures=failures, errors="0"
        )
        for grade in own:
            stem = grade.notebook.removesuffix(".ipynb")
            for name, mark in grade.marks.items():
                case = ElementTree.SubElement(suite, "testcase", classname=stem, name=name)
                if not mark.passed:
                    said = mark.sentence or mark.verdict
                    ElementTree.SubElement(case, "failure", message=said).text = said
            for note in grade.notes:
                ElementTree.SubElement(suite, "system-err").text = f"{grade.notebook}: {note}"
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
