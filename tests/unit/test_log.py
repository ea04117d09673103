"""What LABKIT_LOG does: a handler only where it is asked for; one sentence for what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import DataError, UsageError, log

OURS = logging.getLogger("labkit")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(log.VARIABLE, raising=False)
    log.begin()
    yield
    monkeypatch.delenv(log.VARIABLE, raising=False)
    log.begin()
    assert OURS.handlers == []


def said(text: str, name: str = "labkit.runtime.watchdog") -> None:
    logging.getLogger(name).debug(text)
    logging.getLogger(name).info(text.upper())


def test_nothing_is_installed_and_nothing_is_written_without_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    log.begin()
    said("a look")
    assert OURS.handlers == []
    assert not logging.getLogger("labkit.runtime.watchdog").isEnabledFor(logging.INFO)
    assert capfd.readouterr() == ("", "")


def test_a_level_alone_writes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(log.VARIABLE, "info")
    log.begin()
    said("a look")
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert "labkit.log: Python 3." in first
    assert ", torch " in first
    assert second.endswith(" labkit.runtime.watchdog: A LOOK")


def test_a_file_is_appended_to_and_the_variable_is_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a: first.log", tmp_path / "second.log"
    first.write_text("here before\n")
    monkeypatch.setenv(log.VARIABLE, f"debug:{first}")
    log.begin()
    log.begin()  # the next labkit.start
    said("one")
    monkeypatch.setenv(log.VARIABLE, f"debug:{second}")
    log.begin()
    said("two")
    lines = first.read_text().splitlines()
    assert [line.rpartition(": ")[2] for line in [lines[0], *lines[2:]]] == [
        "here before", "one", "ONE",
    ]  # fmt: skip
    assert [line.rpartition(": ")[2] for line in second.read_text().splitlines()[1:]] == [
        "two", "TWO",
    ]  # fmt: skip
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wrong", ["loud", "DEBUG", "1", ":labkit.log"])
def test_a_level_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(log.VARIABLE, wrong)
    with pytest.raises(UsageError, match=r"^The variable LABKIT_LOG must be a level, info or debu"):
        log.begin()


def test_a_file_that_cannot_be_written_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(log.VARIABLE, f"debug:{tmp_path}/no/such/labkit.log")
    with pytest.raises(DataError, match=r"labkit\.log cannot be written \(No such file"):
        log.begin()


def test_a_program_can_listen_without_the_variable(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "labkit"):
        said("a look")
    assert [record.getMessage() for record in caplog.records] == ["a look", "A LOOK"]
