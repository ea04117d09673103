"""What LABKIT_LOG does: a handler only where it is asked for; one sentence for what is wrong."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import DataError, UsageError
from labkit.base import log
from tests.support.others import NOBODY, as_nobody, as_root, open_folder, reachable

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
    assert "labkit.base.log: Python 3." in first
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


@as_root
def test_a_log_goes_to_no_file_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder for all: a link to a file of ours, a file of theirs, a second name of ours."""
    folder, precious = open_folder(reachable(tmp_path) / "class"), tmp_path / "precious"
    precious.touch()
    as_nobody("ln", "-s", precious, folder / "link")
    as_nobody("touch", folder / "theirs")
    os.link(precious, folder / "second")
    for name, why in (
        ("link", f"{folder}/link is a link that was made by user"),
        ("theirs", "it belongs to another user"),
        ("second", "it has a second name"),
    ):
        monkeypatch.setenv(log.VARIABLE, f"debug:{folder / name}")
        with pytest.raises(DataError) as caught:
            log.begin()
        assert why in str(caught.value)
    assert precious.read_bytes() == (folder / "theirs").read_bytes() == b""
    os.chown(folder, NOBODY, NOBODY)
    monkeypatch.setenv(log.VARIABLE, f"debug:{folder / 'own'}")
    log.begin()
    said("a look")
    assert "A LOOK" in (folder / "own").read_text()


def test_a_log_goes_to_an_open_file_without_a_name_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryFile(dir=tmp_path) as caught:
        monkeypatch.setenv(log.VARIABLE, f"debug:/proc/self/fd/{caught.fileno()}")
        log.begin()
        assert b"Python" in caught.read()
    assert not list(tmp_path.iterdir())


def test_a_log_follows_a_link_of_the_user_and_goes_to_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("file")
    monkeypatch.setenv(log.VARIABLE, f"debug:{tmp_path / 'link'}")
    log.begin()
    assert "Python" in (tmp_path / "file").read_text()
    for device in ("/dev/null", "/dev/stderr"):
        monkeypatch.setenv(log.VARIABLE, f"debug:{device}")
        log.begin()
