"""The parts in which CI runs the tests are all of them."""

from __future__ import annotations

import yaml

from tests.support import parts, schedule

JOBS = yaml.safe_load((parts.ROOT / ".github/workflows/ci.yml").read_text())["jobs"]


def test_every_file_belongs_to_a_part_and_every_path_of_a_part_has_files():
    belongs = {path: parts.part_of(path) for path in parts.files()}
    for name, starts in parts.PARTS.items():
        for start in starts:
            own = [p for p in belongs if p.startswith(start) and belongs[p] == name]
            assert own, f"no file of part {name} is at {start}"


def test_ci_runs_a_share_with_each_commit_and_every_part_each_night():
    assert [step["run"] for step in JOBS["test"]["steps"] if "run" in step] == [".ci/run"]
    nightly = JOBS["everything"]
    assert "schedule" in nightly["if"]
    assert nightly["strategy"]["matrix"]["part"] == list(parts.PARTS)
    runs = [step["run"] for step in nightly["steps"] if "run" in step]
    assert runs == ["make test-all PART=${{ matrix.part }}"]


def test_make_lists_a_part_all_of_them_or_what_there_is(capsys):
    assert parts.main(["answers"]) == 0
    assert capsys.readouterr().out == "tests/course/test_answers.py\n"
    assert parts.main([]) == 0
    assert capsys.readouterr().out == ""  # pytest has its own list then
    assert parts.main(["answer"]) == 2
    assert "the parts of the tests are unit, answers, course," in capsys.readouterr().err


def test_what_takes_long_is_there_and_begins_first() -> None:
    every = parts.files()
    assert set(schedule.PARTS) <= set(every)
    for start in schedule.LONG:
        assert any(file.startswith(start) for file in every), start
    places = [schedule.place_of(f"{file}::test") for file in every]
    unit = {p for file, p in zip(every, places, strict=True) if file.startswith("tests/unit")}
    assert unit == {len(schedule.LONG)} == {max(places)}
