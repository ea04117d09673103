"""What a kernel prints is for its front end only, not for every user of the machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import zmq
from jupyter_client.manager import start_new_kernel

from labkit.tools import environment, run_notebook
from labkit.tools.doctor import software
from tests.support.unwatched import Unwatched

#: Tells whether its kernel has keys.
HAS_KEYS = (
    "import json\nfrom ipykernel.connect import get_connection_file\n"
    "with open(get_connection_file()) as file:\n    told = json.load(file)\n"
    "bool(told.get('curve_secretkey'))"
)
SECONDS = 3

pytestmark = pytest.mark.skipif(
    bool(environment.unencrypted_reason()), reason="this jupyter_client or ipykernel cannot encrypt"
)


def overheard(port: int, say: Callable[[], None]) -> list[bytes]:
    """Subscribe to all that a kernel shows, as anybody can who finds the port; return it."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.poll(500)  # the subscription has arrived
        say()
        heard = []
        while socket.poll(1000 * SECONDS if not heard else 200):
            heard += socket.recv_multipart()
        return heard


@pytest.mark.parametrize("settings", [environment.encryption(), {}], ids=["encrypted", "plain"])
@pytest.mark.slow
def test_who_has_no_key_hears_nothing(settings: dict[str, str]) -> None:
    manager, client = start_new_kernel(**settings)
    said: list[dict[str, object]] = []

    def say() -> None:
        client.execute_interactive("print('secret')", timeout=120, output_hook=said.append)

    try:
        heard = overheard(manager.iopub_port, say)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "secret" in str(said)
    assert any(b"secret" in part for part in heard) == (not settings)


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    cell = nbformat.v4.new_code_cell(HAS_KEYS, execution_count=1)
    cell.outputs = [
        nbformat.v4.new_output("execute_result", {"text/plain": "True"}, execution_count=1)
    ]
    path = tmp_path / "keys.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


@pytest.mark.slow
def test_labkit_run_encrypts(notebook: Path) -> None:
    nb = run_notebook.read(notebook)
    nb.cells[0].outputs = []
    failure = run_notebook.execute(
        nb, notebook.parent, ranks=None, timeout=300, watcher=Unwatched()
    )
    assert failure is None
    assert [output.data["text/plain"] for output in nb.cells[0].outputs] == ["True"]


@pytest.mark.slow
def test_labkit_test_encrypts(notebook: Path) -> None:
    command = [sys.executable, "-m", "labkit", "test", str(notebook)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_an_older_jupyter_client_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.encryption() == {"transport_encryption": "auto"}
    monkeypatch.setattr(zmq, "has", lambda feature: False)
    assert environment.encryption() == {}
    finding = software.check_strangers({"open": ""})
    assert finding.state == "note"
    assert "can read what the kernels of notebooks print" in finding.text


def test_the_doctor_says_who_can_read_along() -> None:
    assert software.check_strangers({"open": ""}).state == "ok"
