"""A lab on libraries whose insides have other names: what still works, and what is said.

The libraries are real: a copy in which one name is another one, everywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.wire.state import folder_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("ipyparallel", "ipykernel", "IPython")

WORKS = """
import labkit
lab = labkit.start(2)
print("LATER", flush=True)
print(lab.run(lambda: __import__("torch.distributed").distributed.get_rank()))
from labkit import LabError
try:
    lab.run(lambda: 1 / 0)
except labkit.RankError as error:
    print(type(error).__name__, "ZeroDivisionError" in str(error))
print(lab.run(lambda: 5))
print(lab.status())
lab.stop()
print("stopped")
"""

#: A name, and the part of the sentence that is said about it.
OFF = {
    "_control_stream": "Client._control_stream: ranks cannot be asked while a cell runs",
    "_query_stream": "Client._query_stream: a start may wait in vain for a rank that is there",
    "_outstanding_dict": "Client._outstanding_dict: a rank that has ended its cell counts as busy",
    "_notification_handlers": "Client._notification_handlers: how a rank of engines",
    "handle_new_heart": "Hub.handle_new_heart: a start takes up to 0.2 s longer",
    "monitor_handlers": "Hub.monitor_handlers: each cell costs the controller nearly twice",
    "construct_url": "IPController.construct_url: the controller listens on loopback",
    "heartmonitor_process": "IPController.heartmonitor_process: the controller has a second",
    "_signal_stop": "IPEngine._signal_stop: ranks take up to half a second longer to end",
    "control_handlers": "Kernel.control_handlers: ranks cannot be asked while a cell runs",
    "control_thread": "Kernel.control_thread: ranks cannot be asked while a cell runs",
    "get_code_name": "XCachingCompiler.get_code_name: errors and deadlocks do not say",
    "_publish_execute_input": "Kernel._publish_execute_input: each cell costs each rank three more",
    "_queue_handlers": "Client._queue_handlers: each cell costs the notebook three more messages",
    "ask_exit": "ZMQInteractiveShell.ask_exit: exit() in a cell may end its rank",
    "_showtraceback": "InteractiveShell._showtraceback: errors of a rank show IPython's long",
}


def run(name: str, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script on libraries in which ``name`` has another name."""
    for package in PACKAGES:
        source = folder_of(package)
        assert source is not None
        skipped = shutil.ignore_patterns("tests", "__pycache__", "nbextension", "labextension")
        shutil.copytree(source, folder / package, ignore=skipped)
        for path in (folder / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if name in text:
                path.write_text(re.sub(rf"\b{name}\b", f"{name}_2", text), encoding="utf-8")
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", OFF)
def test_a_lab_works_without_a_name_and_says_what_is_off(name: str, tmp_path: Path) -> None:
    ran = run(name, WORKS, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    start, later = ran.stdout.split("LATER\n")
    assert start.startswith("labkit: ")
    assert OFF[name] in start
    assert later.startswith("[0, 1]\nRankError True\n[5, 5]\n")
    assert later.endswith("stopped\n")
    assert OFF[name] in later  # under the table
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_children", "AsyncResult._children: labkit cannot follow what runs on the ranks."),
        ("complete_registration", "labkit cannot tell when a rank is there."),
    ],
)
def test_a_lab_that_could_not_work_is_not_started(name: str, said: str, tmp_path: Path) -> None:
    script = """
import sys
import labkit
try:
    labkit.start(2)
except labkit.LabError as error:
    print(error)
print("ipyparallel" in sys.modules, "labkit.launch.fork_server" in sys.modules)
"""
    ran = run(name, script, tmp_path)
    sentence, loaded = ran.stdout.splitlines()
    assert sentence.startswith("ipyparallel ")
    assert sentence.endswith(said)
    assert loaded == "False False"


def test_a_deadlock_ends_by_its_timeout_where_ranks_cannot_be_asked(tmp_path: Path) -> None:
    script = """
import labkit
lab = labkit.start(2, timeout=4)
def wait():
    import torch.distributed as dist
    if dist.get_rank() == 0:
        dist.barrier()
try:
    lab.run(wait)
except labkit.RankError as error:
    print(type(error).__name__)
print(lab.run(lambda: 5))
"""
    ran = run("_control_stream", script, tmp_path)
    assert ran.stdout.splitlines()[-2:] == ["RankError", "[5, 5]"], ran.stdout + ran.stderr
