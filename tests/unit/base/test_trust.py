"""What nobody else could have laid is told from what somebody could."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from labkit.base import trust
from tests.support.others import NOBODY, as_nobody, as_root, open_folder, reachable, sticky_folder


@pytest.fixture
def way(tmp_path: Path) -> Path:
    return reachable(tmp_path)


def test_what_is_ours_alone_is_fine(way: Path) -> None:
    (way / "file").touch(0o644)
    for path in (way, way / "file", way / "none" / "yet", Path("/"), Path("/dev/null")):
        assert trust.unsafe_reason(path) == ""
    (way / "link").symlink_to("file")
    assert trust.unsafe_reason(way / "link") == ""
    assert trust.unsafe_reason(way / "." / "file") == ""


def test_a_name_that_counts_from_the_working_folder(
    way: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(way)
    assert trust.unsafe_reason("") == trust.unsafe_reason("new") == ""
    way.chmod(0o777)
    assert trust.unsafe_reason("") == f"everybody can write to {way}"
    assert trust.unsafe_reason("new") == f"{way}/new is not there, and everybody can make it"


def test_a_folder_that_everybody_can_write_to(way: Path) -> None:
    folder = open_folder(way / "open")
    assert trust.unsafe_reason(folder) == f"everybody can write to {folder}"
    assert trust.unsafe_reason(folder, crowded=True) == f"everybody can write to {folder}"
    (folder / "inside").mkdir(0o700)  # its name can be given to another one
    assert trust.unsafe_reason(folder / "inside") == f"everybody can write to {folder}"
    assert "everybody can make it" in trust.unsafe_reason(folder / "none")


def test_a_folder_such_as_tmp_is_good_for_what_is_there_already(way: Path) -> None:
    folder = sticky_folder(way / "tmp")
    (folder / "mine").mkdir(0o700)
    assert trust.unsafe_reason(folder, crowded=True) == ""
    assert trust.unsafe_reason(folder / "mine") == ""
    assert trust.unsafe_reason(folder) == f"everybody can write to {folder}"
    assert (
        trust.unsafe_reason(folder / "none")
        == f"{folder}/none is not there, and everybody can make it"
    )


@as_root
def test_what_somebody_else_has_laid(way: Path) -> None:
    folder = sticky_folder(way / "tmp")
    as_nobody("mkdir", folder / "laid")
    as_nobody("ln", "-s", "/etc", folder / "link")
    me = pwd.getpwuid(NOBODY).pw_name
    assert trust.unsafe_reason(folder / "laid") == f"{folder}/laid belongs to user {me!r}"
    assert trust.unsafe_reason(folder / "laid" / "x") == f"{folder}/laid belongs to user {me!r}"
    for path in (folder / "link", folder / "link" / "passwd"):
        assert trust.unsafe_reason(path) == f"{folder}/link is a link that was made by user {me!r}"
    assert trust.unsafe_reason(folder / "laid", friends=[NOBODY]) == ""
    # A link of ours does not make it better.
    (way / "way").symlink_to(folder / "laid")
    assert trust.unsafe_reason(way / "way") == f"{folder}/laid belongs to user {me!r}"
    # Whoever owns a folder can touch all that is in it, whatever its mode.
    os.chown(folder, NOBODY, NOBODY)
    assert trust.unsafe_reason(folder, crowded=True) == f"{folder} belongs to user {me!r}"


def test_links_that_go_round(way: Path) -> None:
    (way / "a").symlink_to("b")
    (way / "b").symlink_to("a")
    assert trust.unsafe_reason(way / "a") == f"{way / 'a'} has too many links on its way"


def test_the_group_of_a_folder_counts_by_who_is_in_it(
    way: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = way / "group"
    folder.mkdir()
    folder.chmod(0o2775)
    user, group = os.geteuid(), folder.stat().st_gid
    name = pwd.getpwuid(user).pw_name
    others: list[str] = []
    called = name

    def fake(number: int) -> SimpleNamespace:
        return SimpleNamespace(gr_name=called, gr_mem=others)

    def ask(members: list[str], own_name: str) -> str:
        nonlocal others, called
        others, called = members, own_name
        trust._is_private.cache_clear()
        return trust.unsafe_reason(folder)

    monkeypatch.setattr(grp, "getgrgid", fake)
    monkeypatch.setattr(trust, "FIRST_USER_GROUP", 0)
    own = [pwd.getpwuid(user)]
    monkeypatch.setattr(pwd, "getpwall", lambda: own)
    assert ask([], name) == ask([name], name) == ask(["root"], name) == ""
    assert ask(["alice"], name) == f"group {name!r} can write to {folder}"
    assert ask([], "students") == f"group 'students' can write to {folder}"
    own.append(SimpleNamespace(pw_name="bob", pw_gid=group))  # it is his first group
    assert ask([], name) == f"group {name!r} can write to {folder}"
    trust._is_private.cache_clear()


@as_root
def test_a_link_on_the_way_of_a_file_that_is_written(way: Path) -> None:
    folder = open_folder(way / "class")
    as_nobody("ln", "-s", way / "precious", folder / "log")
    assert "is a link that was made by user" in trust.unsafe_link_reason(folder / "log")
    assert trust.unsafe_link_reason(folder / "other") == ""
    (way / "mine").symlink_to(folder / "log")
    assert "is a link that was made by user" in trust.unsafe_link_reason(way / "mine")
    (way / "fine").symlink_to("plain")
    assert trust.unsafe_link_reason(way / "fine") == ""


def test_whoever_installed_python_is_trusted() -> None:
    assert os.stat(os.__file__).st_uid in trust.installers()
