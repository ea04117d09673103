"""The container's files, as far as they can be read: no image is built here."""

from __future__ import annotations

import json
import re
import shlex

from typer.main import get_command

from labkit.__main__ import app
from tests.support.conda_versions import ROOT

FOLDER = ROOT / ".devcontainer"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
DEVCONTAINER = json.loads((FOLDER / "devcontainer.json").read_text())
STEPS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    if line and not line.startswith("#")
]


def test_it_runs_as_an_ordinary_user() -> None:
    (user,) = [words for step, words in STEPS if step == "USER"]
    assert user == DEVCONTAINER["remoteUser"] == "learner"
    (made,) = [i for i, (step, words) in enumerate(STEPS) if "useradd" in words]
    assert made < STEPS.index(["USER", user]) < STEPS.index(["WORKDIR", "/home/learner"])
    assert any(words.startswith(f"--chown={user}:{user} ") for step, words in STEPS)


def test_jupyterlab_listens_on_loopback_unless_the_port_is_published() -> None:
    step, words = STEPS[-1]
    assert (step, json.loads(words)) == ("CMD", ["labkit", "lab", "--no-browser"])
    (publish,) = re.findall(r"labkit (labkit lab .* --ServerApp\.ip=0\.0\.0\.0)$", DOCKERFILE, re.M)
    assert "--publish 127.0.0.1:8888:8888" in DOCKERFILE
    arguments = shlex.split(publish)[1:]
    assert arguments[0] in get_command(app).commands  # type: ignore[attr-defined]
    assert "--port 8888 -- " in publish
    assert DEVCONTAINER["forwardPorts"] == [8888]


def test_both_files_have_the_shared_memory_that_labkit_needs() -> None:
    assert "--shm-size=1g" in DEVCONTAINER["runArgs"]
    assert "--shm-size=1g" in DOCKERFILE


def test_the_development_container_stops_at_a_stage_that_there_is() -> None:
    stages = {words.split()[-1] for step, words in STEPS if step == "FROM"}
    assert DEVCONTAINER["build"]["target"] in stages
    assert DEVCONTAINER["postCreateCommand"] == "make setup"
    assert (FOLDER / DEVCONTAINER["build"]["dockerfile"]).is_file()
    assert (FOLDER / DEVCONTAINER["build"]["context"]).resolve() == ROOT
