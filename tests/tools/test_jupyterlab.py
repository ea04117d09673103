"""`labkit lab` for real: what it serves, to whom, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from tornado.websocket import websocket_connect

from labkit.tools import environment, jupyterlab
from tests.browser.server import CourseServer, course_server

FOREIGN_WARNINGS = (
    "_jupyter_server_extension_points",  # of ipyparallel, when the server starts
    "is not trusted",  # of a notebook that Jupyter has not seen before
    "websocket_ping_timeout",  # when the page opens its first connection
)
NOTIFICATION = "@jupyterlab/apputils-extension:notification"


@pytest.fixture(scope="module", params=[signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl-c"])
def ended_by(request: pytest.FixtureRequest) -> signal.Signals:
    """How the last of the tests below ends the server, which the others only ask."""
    how: signal.Signals = request.param
    return how


@pytest.fixture(scope="module")
def server(
    cold: None, ended_by: signal.Signals, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CourseServer]:
    """A JupyterLab with a course of its own."""
    with course_server(tmp_path_factory.mktemp("lab")) as running:
        yield running


def ask(
    server: CourseServer, path: str, method: str = "GET", body: object = None, *, token: bool = True
) -> tuple[int, str, bytes]:
    """Send one request; return status, Location header and body."""
    url = urlsplit(server.url)
    headers = {"Authorization": f"token {token_of(server)}"} if token else {}
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=120)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Location", ""), answer.read()
    finally:
        connection.close()


def token_of(server: CourseServer) -> str:
    """Return what gives access to a server."""
    return urlsplit(server.url).query.removeprefix("token=")


@pytest.mark.slow
def test_it_serves_the_course_to_who_has_the_token(server: CourseServer) -> None:
    page, token = urlsplit(server.url).path, token_of(server)
    assert page == f"/lab/tree/{jupyterlab.FIRST_PAGE}"
    assert len(token) >= 32
    status, _, body = ask(server, f"{page}?token={token}", token=False)
    assert status == 200
    assert b"JupyterLab" in body
    status, location, _ = ask(server, page, token=False)
    assert status == 302
    assert location.startswith("/login")
    assert ask(server, "/api/contents", token=False)[0] == 403
    status, _, body = ask(server, "/api/contents/notebooks")
    assert status == 200
    assert "00_start_here.ipynb" in {entry["name"] for entry in json.loads(body)["content"]}


@pytest.mark.slow
def test_it_is_silent_and_presets_what_the_user_may_change(server: CourseServer) -> None:
    """No foreign warning, no question about news, no side bar whose clusters are no labs."""
    assert f"{server.folder} opens at the address below. Stop JupyterLab with" in server.said
    notebook = ask(server, f"/api/contents/{jupyterlab.FIRST_PAGE}")
    assert notebook[0] == 200  # an unsigned one would be warned of
    asyncio.run(use_terminal(server))
    assert [warning for warning in FOREIGN_WARNINGS if warning in server.said] == []
    page = ask(server, f"/lab/tree/{jupyterlab.FIRST_PAGE}")[2].decode()
    (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert "ipyparallel-labextension" in json.loads(config)["disabledExtensions"]
    browser = "@jupyterlab/filebrowser-extension:browser"
    settings = json.loads(ask(server, f"/lab/api/settings/{browser}")[2])
    columns = settings["schema"]["properties"]["showLastModifiedColumn"]
    assert columns["default"] is False
    news = json.loads(ask(server, f"/lab/api/settings/{NOTIFICATION}")[2])
    assert news["schema"]["properties"]["fetchNews"]["default"] == "false"
    chosen = {"raw": '{"fetchNews": "true"}'}
    assert ask(server, f"/lab/api/settings/{NOTIFICATION}", "PUT", chosen)[0] == 204
    assert "true" in json.loads(ask(server, f"/lab/api/settings/{NOTIFICATION}")[2])["raw"]


async def use_terminal(server: CourseServer) -> None:
    """Open a terminal as the page does: tornado looks at a connection's pings when it opens."""
    status, _, body = ask(server, "/api/terminals", "POST")
    assert status == 200
    name = json.loads(body)["name"]
    url = urlsplit(server.url)
    address = f"ws://{url.netloc}/terminals/websocket/{name}?{url.query}"
    connection = await websocket_connect(address)
    try:
        assert await asyncio.wait_for(connection.read_message(), 120) is not None
    finally:
        connection.close()
    assert ask(server, f"/api/terminals/{name}", "DELETE")[0] == 204


@pytest.mark.slow
def test_it_keeps_to_its_folder(server: CourseServer) -> None:
    """The layout of tabs is remembered in the course folder, not among the user's settings."""
    workspace = {"data": {}, "metadata": {"id": "default"}}
    status, _, _ = ask(server, "/lab/api/workspaces/default", "PUT", workspace)
    assert status == 204
    assert len(list((server.folder / ".jupyter" / "workspaces").iterdir())) == 1
    written = [path for path in server.home.rglob("*") if path.is_file()]
    # Jupyter's signatures of the course's notebooks; npm logs every call.
    signatures = {"nbsignatures.db", "notebook_secret"}
    assert {path.name for path in written if ".npm" not in path.parts} == signatures
    assert server.opened == ""  # --no-browser


@pytest.mark.slow
def test_it_listens_on_loopback_only_and_leaves_nothing(
    server: CourseServer, ended_by: signal.Signals, eventually: Callable[..., None]
) -> None:
    """A notebook with a lab is open: server, kernel, ranks and their folder go together."""
    path = "/api/sessions"
    body = {
        "path": "notebooks/mine.ipynb",
        "type": "notebook",
        "name": "mine",
        "kernel": {"name": "python3"},
    }
    status, _, answer = ask(server, path, "POST", body)
    assert status == 201
    kernel = json.loads(answer)["kernel"]["id"]
    connection_file = server.runtime / f"kernel-{kernel}.json"
    if environment.encryption():
        assert json.loads(connection_file.read_text())["curve_secretkey"]
    root = start_lab(connection_file)
    family = server.family()
    assert len(family) >= 7  # server, zygote, kernel, warm process, controller, two ranks
    (zygote,) = [p for p in server_children(set(family)) if "labkit.launch.zygote" in p.cmdline()]
    assert zygote.children() != []  # the lab's warm process was forked by it
    listening = {
        connection.laddr.ip
        for process in family
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    server.process.send_signal(ended_by)
    server.process.wait(120)
    eventually(lambda: not any(process.is_running() for process in family))
    eventually(lambda: not root.exists())
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/api")


def server_children(family: set[psutil.Process]) -> list[psutil.Process]:
    """List the processes of a server's family that it has started itself."""
    (server,) = [p for p in family if "jupyterlab" in p.cmdline()]
    return server.children()


def start_lab(connection_file: Path) -> Path:
    """Start a lab of two ranks in a kernel; return its private folder."""
    code = (
        "import sys\n"
        "from jupyter_client import BlockingKernelClient\n"
        "client = BlockingKernelClient(connection_file=sys.argv[1])\n"
        "client.load_connection_file()\n"
        "client.hb_channel.time_to_dead = 60\n"  # else: dead if it imports for a second
        "client.start_channels()\n"
        "client.wait_for_ready(60)\n"
        "cell = 'import labkit; from labkit.notebook.lab import session_of; '\n"
        "cell += 'print(session_of(labkit.start(2)).cluster.launcher.warm.root)'\n"
        "reply = client.execute_interactive(cell, timeout=120)\n"
        "assert reply['content']['status'] == 'ok', reply\n"
    )
    command = [sys.executable, "-c", code, str(connection_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    root = Path(done.stdout.strip())
    assert root.is_dir()
    return root
