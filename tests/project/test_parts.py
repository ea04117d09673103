"""The parts in which CI runs the tests are all of them."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
import yaml

from tests.support import parts

JOBS = yaml.safe_load((parts.ROOT / ".github/workflows/ci.yml").read_text())["jobs"]


def test_every_file_belongs_to_a_part_and_every_path_of_a_part_has_files():
    belongs = {path: parts.part_of(path) for path in parts.files()}
    for name, starts in parts.PARTS.items():
        for start in starts:
            own = [p for p in belongs if p.startswith(start) and belongs[p] == name]
            assert own, f"no file of part {name} is at {start}"


def test_a_file_in_no_part_is_told():
    with pytest.raises(ValueError, match=r"tests/new/test_it\.py belongs to no part of the tests"):
        parts.part_of("tests/new/test_it.py")


def test_ci_runs_every_part():
    assert JOBS["test"]["strategy"]["matrix"]["part"] == list(parts.PARTS)
    assert any("PART=${{ matrix.part }}" in step.get("run", "") for step in JOBS["test"]["steps"])


def test_make_lists_a_part_all_of_them_or_what_there_is(capsys):
    assert parts.main(["answers"]) == 0
    assert capsys.readouterr().out == "tests/course/test_answers.py\n"
    assert parts.main([]) == 0
    assert capsys.readouterr().out == ""  # pytest has its own list then
    assert parts.main(["answer"]) == 2
    assert "the parts of the tests are unit, answers, course," in capsys.readouterr().err


def test_make_runs_the_part_that_is_said():
    # A make of its own, not a part of one that runs this.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    dry = subprocess.run(
        ["make", "--dry-run", "test", "PART=answers"],
        cwd=parts.ROOT,
        env={**environment, "CI": ""},
        text=True,
        capture_output=True,
        check=True,
    )
    assert re.search(r"python -m tests\.support\.parts answers\)", dry.stdout), dry.stdout
