"""`labkit lab` for real: what it serves, to whom, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from labkit import jupyter

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"
START_SECONDS = 60


def test_what_the_user_adds_comes_last(tmp_path: Path) -> None:
    argv = jupyter.command(tmp_path, port=8899, browser=False, extra=["--ServerApp.port=1"])
    assert argv[-1] == "--ServerApp.port=1"
    assert argv.index("--ServerApp.port=8899") < len(argv) - 1


@dataclass
class Server:
    """A JupyterLab that `labkit lab` started."""

    process: subprocess.Popen[str]
    folder: Path
    runtime: Path
    port: int
    path: str  #: of the page that it opens
    token: str

    def ask(
        self, path: str, method: str = "GET", body: object = None, *, token: bool = True
    ) -> tuple[int, str, bytes]:
        """Send one request; return status, Location header and body."""
        headers = {"Authorization": f"token {self.token}"} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Location", ""), answer.read()
        finally:
            connection.close()

    def family(self) -> list[psutil.Process]:
        server = psutil.Process(self.process.pid)
        return [server, *server.children(recursive=True)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder, home = tmp_path / "work", tmp_path / "home"
    home.mkdir()
    ours = {name: text for name, text in os.environ.items() if not name.startswith("JUPYTER")}
    environment = {**ours, "HOME": str(home), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    command = [str(LABKIT), "lab", str(folder), "--no-browser", "--port", "0"]
    log = tmp_path / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, text=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(r"http://127\.0\.0\.1:\S+", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        url = urlsplit(found[0])
        token = url.query.removeprefix("token=")
        assert url.port is not None
        yield Server(process, folder, tmp_path / "runtime", url.port, url.path, token)
    finally:
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
            for left in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()


@pytest.mark.slow
def test_it_serves_the_course_to_who_has_the_token(server: Server) -> None:
    assert server.path == f"/lab/tree/{jupyter.FIRST_PAGE}"
    assert len(server.token) >= 32
    status, _, body = server.ask(f"{server.path}?token={server.token}", token=False)
    assert status == 200
    assert b"JupyterLab" in body
    status, location, _ = server.ask(server.path, token=False)
    assert status == 302
    assert location.startswith("/login")
    assert server.ask("/api/contents", token=False)[0] == 403
    status, _, body = server.ask("/api/contents/notebooks")
    assert status == 200
    assert "00_start_here.ipynb" in {entry["name"] for entry in json.loads(body)["content"]}


@pytest.mark.slow
def test_it_keeps_to_its_folder(server: Server, tmp_path: Path) -> None:
    """The layout of tabs is remembered in the course folder, not among the user's settings."""
    workspace = {"data": {}, "metadata": {"id": "default"}}
    status, _, _ = server.ask("/lab/api/workspaces/default", "PUT", workspace)
    assert status == 204
    assert len(list((server.folder / ".jupyter" / "workspaces").iterdir())) == 1
    written = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert [path for path in written if path.name != "migrated"] == []  # Jupyter's own mark


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl-c"])
def test_it_listens_on_loopback_only_and_leaves_nothing(
    server: Server, how: signal.Signals, eventually: Callable[..., None]
) -> None:
    """A notebook with a lab is open: server, kernel, ranks and their folder go together."""
    path = "/api/sessions"
    body = {
        "path": "notebooks/mine.ipynb",
        "type": "notebook",
        "name": "mine",
        "kernel": {"name": "python3"},
    }
    status, _, answer = server.ask(path, "POST", body)
    assert status == 201
    kernel = json.loads(answer)["kernel"]["id"]
    root = start_lab(server.runtime / f"kernel-{kernel}.json")
    family = server.family()
    assert len(family) >= 6  # server, kernel, warm process, controller, two ranks
    listening = {
        connection.laddr.ip
        for process in family
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    server.process.send_signal(how)
    server.process.wait(30)
    eventually(lambda: not any(process.is_running() for process in family), 15)
    eventually(lambda: not root.exists(), 5)
    with pytest.raises(ConnectionRefusedError):
        server.ask("/api")


def start_lab(connection_file: Path) -> Path:
    """Start a lab of two ranks in a kernel; return its private folder."""
    code = (
        "import sys\n"
        "from jupyter_client import BlockingKernelClient\n"
        "client = BlockingKernelClient(connection_file=sys.argv[1])\n"
        "client.load_connection_file()\n"
        "client.start_channels()\n"
        "client.wait_for_ready(60)\n"
        "cell = 'import labkit; lab = labkit.start(2); print(lab._cluster.warm.root)'\n"
        "reply = client.execute_interactive(cell, timeout=60)\n"
        "assert reply['content']['status'] == 'ok', reply\n"
    )
    command = [sys.executable, "-c", code, str(connection_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    root = Path(done.stdout.strip())
    assert root.is_dir()
    return root
