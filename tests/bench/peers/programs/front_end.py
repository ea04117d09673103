"""Open a notebook in a Jupyter server as JupyterLab does: its requests and messages, no browser."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import websocket
from protocol import free_port

READY_SECONDS = 120


class Server:
    """A Jupyter server on the loopback interface, with a token and JupyterLab's extensions."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
        self.token = uuid.uuid4().hex
        self.address = f"127.0.0.1:{free_port()}"
        ip, port = self.address.split(":")
        flags = [f"--ServerApp.ip={ip}", f"--ServerApp.port={port}", "--ServerApp.port_retries=0",
                 f"--ServerApp.root_dir={self.folder}", "--no-browser", "--allow-root"]  # fmt: skip
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *flags],
                env={**os.environ, "JUPYTER_TOKEN": self.token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.wait()

    def wait(self):
        """Wait until the server answers."""
        began = time.monotonic()
        while time.monotonic() - began < READY_SECONDS and self.process.poll() is None:
            try:
                return self.ask("GET", "api/status")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        sys.exit("no Jupyter server: " + (self.folder / "log").read_text()[-1000:])

    def ask(self, method, path, body=None):
        """Send a request; return what the server answers."""
        data = None if body is None else json.dumps(body).encode()
        header = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        url = f"http://{self.address}/{path}"
        request = urllib.request.Request(url, data=data, headers=header, method=method)
        with urllib.request.urlopen(request, timeout=READY_SECONDS) as reply:
            text = reply.read()
        return json.loads(text) if text else None


class Kernel:
    """A notebook's kernel, reached over the server's WebSocket."""

    def __init__(self, server):
        self.server = server
        notebook = {"path": "notebook.ipynb", "name": "", "type": "notebook"}
        session = server.ask("POST", "api/sessions", {**notebook, "kernel": {"name": "python3"}})
        self.id = session["kernel"]["id"]
        self.connect()

    def connect(self):
        """Open the WebSocket and wait for the kernel's greeting."""
        self.session = uuid.uuid4().hex
        path = f"api/kernels/{self.id}/channels?session_id={self.session}"
        self.socket = websocket.create_connection(
            f"ws://{self.server.address}/{path}",
            header=[f"Authorization: token {self.server.token}"],
            timeout=READY_SECONDS,
        )
        self.request("kernel_info_request")

    def restart(self):
        """Restart the kernel; its process is another one afterwards."""
        self.socket.close()
        self.server.ask("POST", f"api/kernels/{self.id}/restart", {})
        self.connect()

    def send(self, kind, content=None, channel="shell"):
        """Send a message; return its number."""
        number = uuid.uuid4().hex
        header = {"msg_id": number, "msg_type": kind, "session": self.session, "username": "",
                  "version": "5.3", "date": ""}  # fmt: skip
        message = {"header": header, "parent_header": {}, "metadata": {}, "buffers": []}
        self.socket.send(json.dumps({**message, "channel": channel, "content": content or {}}))
        return number

    def receive(self):
        """Return the next message, whatever it answers."""
        while not (text := self.socket.recv()):
            pass
        return json.loads(text)

    def request(self, kind, content=None, channel="shell"):
        """Send a message; return what its reply says."""
        number = self.send(kind, content, channel)
        while True:
            message = self.receive()
            if message["channel"] == channel and message["parent_header"].get("msg_id") == number:
                return message["content"]

    def execute(self, code, heed=lambda message: None):
        """Run a cell to its end, pass every message to ``heed``; return the reply's content."""
        self.socket.settimeout(None)  # a cell may take as long as it takes
        number = self.send("execute_request", {"code": code, "silent": False, "allow_stdin": True})
        reply, idle = None, False
        while reply is None or not idle:
            message = self.receive()
            heed(message)
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "execute_reply":
                reply = message["content"]
            idle = idle or message["content"].get("execution_state") == "idle"
        return reply
