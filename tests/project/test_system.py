"""What tests need beyond Python: the list, the mark, and ``make system-deps``."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import system
from tests.support.conda_versions import ROOT


def test_the_makefile_installs_what_the_tests_name() -> None:
    (listed,) = re.findall(r"^SYSTEM_PACKAGES := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert listed.split() == system.packages()


def test_each_need_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "find", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    mark = system.needs("chromium").mark
    assert mark.args == (True,)
    assert mark.kwargs == {"reason": "needs Chromium: make system-deps"}


def test_nothing_is_skipped_where_it_is_there_or_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "find", lambda name: None)
    monkeypatch.setenv("CI", "true")
    assert system.needs("chromium").mark.args == (False,)
    monkeypatch.setattr(system, "find", lambda name: "/usr/bin/chromium")
    monkeypatch.delenv("CI")
    assert system.needs("chromium").mark.args == (False,)


# -- make system-deps, with stand-ins for what it calls -----------------------------------------


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder that is the whole PATH of ``make``; what is called is noted in ``calls``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in(folder, "dpkg-query", "false")
    stand_in(folder, "apt-get", f'echo "$@" >> {tmp_path / "calls"}')
    stand_in(folder, "id", "echo 0")
    for name in ("chmod", "rm"):
        program = shutil.which(name)
        assert program is not None
        (folder / name).symlink_to(program)
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    """Write a command."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make(commands: Path) -> subprocess.CompletedProcess[str]:
    """Run ``make system-deps``."""
    program = shutil.which("make")
    assert program is not None
    return subprocess.run(
        [
            program,
            "--no-print-directory",
            "-C",
            str(ROOT),
            f"POLICY={commands.parent / 'policy-rc.d'}",
            "system-deps",
        ],
        env={"PATH": str(commands)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_it_installs_what_is_missing(commands: Path) -> None:
    missing = system.packages()[1]
    stand_in(commands, "dpkg-query", f'case "$*" in *{missing}) exit 1;; *) echo installed;; esac')
    done = make(commands)
    assert (done.returncode, done.stderr) == (0, "")
    update, install = (commands.parent / "calls").read_text().splitlines()
    assert update.endswith(" update")
    assert install.endswith(f" --no-install-recommends {missing}")


def test_it_calls_nothing_if_all_is_there(commands: Path) -> None:
    stand_in(commands, "dpkg-query", "echo installed")
    done = make(commands)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (commands.parent / "calls").exists()


def test_no_server_is_started_while_it_installs(commands: Path) -> None:
    policy = commands.parent / "policy-rc.d"
    stand_in(commands, "apt-get", f"{policy} ssh start; echo $? >> {commands.parent / 'answers'}")
    assert make(commands).returncode == 0
    assert set((commands.parent / "answers").read_text().split()) == {"101"}
    assert not policy.exists()


def test_a_policy_that_is_there_stays(commands: Path) -> None:
    policy = commands.parent / "policy-rc.d"
    stand_in(commands.parent, "policy-rc.d", "exit 0")
    assert make(commands).returncode == 0
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_no_policy_is_left_when_it_fails(commands: Path) -> None:
    stand_in(commands, "apt-get", "exit 100")
    assert make(commands).returncode != 0
    assert not (commands.parent / "policy-rc.d").exists()


def test_no_new_server_starts_with_the_system(commands: Path) -> None:
    files = "/usr/sbin/sshd /lib/systemd/system/ssh.service /lib/systemd/system/ssh.socket"
    stand_in(commands, "dpkg-query", f'case "$*" in *--listfiles*) echo {files};; *) exit 1;; esac')
    stand_in(commands, "systemctl", f'echo "$@" >> {commands.parent / "disabled"}')
    assert make(commands).returncode == 0
    disabled = (commands.parent / "disabled").read_text().splitlines()
    assert [line.split()[-1] for line in disabled] == ["ssh.service", "ssh.socket"]
    assert all(" disable " in line for line in disabled)


@pytest.mark.parametrize(
    ("change", "reason"),
    [("no apt-get", "is for Debian (there is no apt-get here)"), ("no root", "needs root")],
)
def test_it_says_why_it_cannot(commands: Path, change: str, reason: str) -> None:
    if change == "no root":
        stand_in(commands, "id", "echo 1000")
    else:
        (commands / "apt-get").unlink()
    done = make(commands)
    assert done.returncode != 0
    assert reason in done.stderr
    assert " ".join(system.packages()) in done.stderr
    assert not (commands.parent / "calls").exists()
