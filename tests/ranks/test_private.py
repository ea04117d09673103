"""What a lab opens on this machine is for its user alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import ipyparallel as ipp
import psutil
import pytest

from tests.conftest import descendants
from tests.support.cells import inside
from tests.support.events import HANG_SECONDS

#: The user "nobody".
NOBODY = 65534


@pytest.fixture
def root(lab4) -> Path:
    """Return the private folder of a lab that has worked."""
    lab4.run(lambda: __import__("torch").distributed.barrier())
    return inside(lab4).cluster.launcher.warm.root


def connection_files(root: Path) -> dict[str, Path]:
    """Return the files with which clients and engines connect."""
    security = root / "profile" / "security"
    return {kind: security / f"ipcontroller-{kind}.json" for kind in ("client", "engine")}


def socket_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]


def test_every_unix_socket_with_a_name_is_in_the_private_folder(root):
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert root.stat().st_uid == os.getuid()
    names = {
        connection.laddr
        for process in [psutil.Process(), *descendants()]
        for connection in process.net_connections("unix")
        if connection.laddr
    }
    # A name that starts with "@" or a null byte has no file, so no folder would protect it.
    assert [name for name in names if root not in Path(name).parents] == []
    files = set(map(str, socket_files(root)))
    assert len(files) >= 10, "the controller listens on one for each kind of message"
    assert files == names


def test_the_connection_files_have_a_key_and_are_for_their_owner(root):
    for path in connection_files(root).values():
        assert root in path.parents
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        assert len(json.loads(path.read_text())["key"]) >= 32


def test_the_key_is_on_no_command_line(root):
    """Any user of a machine can read the command lines of all."""
    key = json.loads(connection_files(root)["client"].read_text())["key"]
    lines = [" ".join(process.cmdline()) for process in [psutil.Process(), *descendants()]]
    # This one, the warm process, the guard of connections, the controller, four ranks.
    assert len(lines) == 8
    assert not any(key in line for line in lines)


@pytest.fixture
def intruder(root) -> Iterator[ipp.Client]:
    """Connect a second client, which knows the way in, to the lab."""
    client = ipp.Client(str(connection_files(root)["client"]), timeout=HANG_SECONDS)
    yield client
    client.close(linger=0)


def test_a_message_with_a_wrong_key_is_refused(intruder, tmp_path, eventually):
    view = intruder.direct_view(intruder.ids[0])
    key = intruder.session.key
    # On the same connection, so what has the right key is dealt with last.
    for name, own in (("wrong", b"wrong"), ("right", key)):
        intruder.session.key = own
        view.execute(f"open({str(tmp_path / name)!r}, 'w')", block=False)
        sent = threading.Event()  # it is signed when the client's thread sends it
        intruder._io_loop.add_callback(sent.set)
        assert sent.wait(5)
    eventually(lambda: (tmp_path / "right").exists())
    assert not (tmp_path / "wrong").exists()


def test_a_client_with_a_wrong_key_does_not_get_in(root, tmp_path):
    file = connection_files(root)["client"]
    info = json.loads(file.read_text())
    own = tmp_path / "ipcontroller-client.json"
    own.write_text(json.dumps({**info, "key": info["key"][::-1]}))
    with pytest.raises(TimeoutError):
        ipp.Client(str(own), timeout=1)


def run_as(user: int, root: Path) -> list[str]:
    """Try, as some user, to list the folder, read the key and connect to each socket.

    Returns what came of each attempt: "ok" or the name of the error.
    """
    code = (
        "import errno, json, os, socket, sys\n"
        "user, root, key, *sockets = json.loads(sys.argv[1])\n"
        "def attempt(act, *args):\n"
        "    try:\n"
        "        act(*args)\n"
        "        return 'ok'\n"
        "    except OSError as error:\n"
        "        return errno.errorcode[error.errno]\n"
        "def connect(name):\n"
        "    with socket.socket(socket.AF_UNIX) as client:\n"
        "        client.settimeout(5)\n"
        "        client.connect(name)\n"
        "if user:\n"
        "    os.setgroups([]); os.setgid(user); os.setuid(user)\n"
        "made = attempt(os.mkdir, root + '/mine') if user else 'ok'\n"
        "known = [attempt(os.listdir, root), attempt(os.stat, key), made]\n"
        "print(json.dumps(known + [attempt(connect, name) for name in sockets]))\n"
    )
    names = [connection_files(root)["client"], *socket_files(root)]
    argument = json.dumps([user, str(root), *map(str, names)])
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_neither_look_nor_connect(lab4, root):
    ours = run_as(0, root)
    assert set(ours) == {"ok"}, "the attempts themselves work"
    theirs = run_as(NOBODY, root)
    assert len(theirs) == len(ours) >= 13
    assert set(theirs) == {"EACCES"}
    assert lab4.run(lambda: 1) == [1, 1, 1, 1]
