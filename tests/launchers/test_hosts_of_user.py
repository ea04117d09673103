"""Several hosts on one machine for somebody who is not root, and where that is forbidden.

Run as root, these tests become nobody for what they start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import hosts
from labkit.hosts import commands
from tests.support.conda_versions import ROOT
from tests.support.external_lab import MARK, marked
from tests.support.system import needs, needs_hosts

pytestmark = [needs("ip"), needs_hosts()]

#: The number of nobody, who owns nothing.
NOBODY = 65534
#: The tests of ``test_hosts`` that see most of what somebody could lack rights for.
MOST = (
    "made or own_name or one_another or signal or slow_link or delay or hangs_is_killed or power "
    "or everything_ends or two_owners or fails_half_way"
)
#: Prints why there are no hosts.
WHY = "from labkit import hosts; print(hosts.unavailable_reason())"


def python_of_all() -> str:
    """Return a Python like this one that every user may run; "" if there is none."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/local/bin/{minor}", f"/usr/bin/{minor}"):
        if shutil.which(path) and are_open(Path(os.path.realpath(path)).parents):
            return path
    return ""


def are_open(folders: Iterator[Path] | list[Path]) -> bool:
    """Tell whether every user may pass through all of these folders."""
    return all(os.stat(folder).st_mode & 0o001 for folder in folders)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder of somebody who is not root, and whom nothing keeps from the course."""
    if not python_of_all() or not are_open([ROOT, *ROOT.parents]):
        pytest.skip("another user than root can read neither this Python nor the course")
    made = Path(tempfile.mkdtemp(prefix="labkit-user-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


def run(words: list[str], folder: Path, mark: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with an environment in which this Python finds the course."""
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        MARK: mark,
    }
    return subprocess.run(
        words, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_what_root_does_others_do_too_and_leave_nothing(folder: Path) -> None:
    become = [commands.find("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t", "-k", MOST]
    words = [python_of_all(), *tests, "tests/launchers/test_hosts.py"]
    mark = uuid.uuid4().hex
    done = run([*become, *words] if os.geteuid() == 0 else words, folder, mark)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout, done.stdout
    assert marked(mark) == []


def test_a_system_that_forbids_it(folder: Path) -> None:
    """In a user namespace in which no more can be made, and without root's rights there."""
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces"
    lose = f"exec {commands.find('setpriv')} --bounding-set=-all --inh-caps=-all"
    script = f'{forbid} && {lose} "$@"'
    outer = [commands.find("unshare"), "--user", "--map-root-user", "sh", "-c", script, "sh"]
    done = run([*outer, python_of_all(), "-c", WHY], folder)
    if "unshare: " in done.stderr:
        pytest.skip(f"no user namespace can be made here at all: {done.stderr.strip()}")
    assert done.stdout.strip() == (
        "Several hosts on one machine need root here: this system lets no other user make "
        "namespaces (user.max_user_namespaces is 0)."
    ), done.stderr


def test_only_root_lets_this_machine_reach_them(folder: Path) -> None:
    lose = [commands.find("setpriv"), "--bounding-set=-all", "--inh-caps=-all"]
    lose = lose if os.geteuid() == 0 else []
    why = WHY.replace("unavailable_reason()", "unavailable_reason(reach=True)")
    done = run([*lose, python_of_all(), "-c", why], folder)
    assert done.stdout.strip() == (
        "reach=True needs root: it adds a link to this machine's own network."
    ), done.stderr
    assert hosts.unavailable_reason() == ""
