"""Give each peer that is not in our lock an environment of its own, below ``build/``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ..child import BenchError

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements.lock"
PINS = Path(__file__).with_name("requirements.txt")
ENVIRONMENTS = ROOT / "build" / "bench-peers" / "environments"
#: What the programs need beside the peer itself; versions are the lock's.
BESIDE = ("torch", "numpy", "ipykernel")
#: Seconds for one environment: most of it is torch, which is compiled to bytecode once.
SECONDS = 900.0


def python_of(package: str) -> Path:
    """Return the interpreter of a peer's environment, whether that exists or not."""
    return ENVIRONMENTS / package / "bin" / "python"


def install(package: str) -> None:
    """Install a peer, unless that was done from the same pins already.

    Raises
    ------
    BenchError
        If it cannot be installed; with what the installer said last.
    """
    folder = ENVIRONMENTS / package
    stamp = folder / ".installed"
    pins = PINS.read_text() + LOCK.read_text() + sys.version
    if stamp.exists() and stamp.read_text() == pins:
        return
    shutil.rmtree(folder, ignore_errors=True)
    uv = str(Path(sys.executable).with_name("uv"))
    run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    python = ["--python", str(python_of(package))]
    pinned = ["--constraint", str(PINS), "--constraint", str(LOCK)]
    command = [uv, "pip", "install", "--quiet", "--compile-bytecode", *python, *pinned]
    run([*command, package, *BESIDE])
    stamp.write_text(pins)


def versions(python: str) -> dict[str, str]:
    """Return the version of every package that an interpreter finds, by its lower-case name."""
    code = (
        "import json, importlib.metadata as m\n"
        "print(json.dumps({d.name.lower(): d.version for d in m.distributions() if d.name}))"
    )
    return json.loads(run([python, "-c", code]))


def run(command: list[str]) -> str:
    """Run a command; return what it wrote to stdout."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"not installed: {error}") from None
    if done.returncode:
        raise BenchError(f"not installed: {done.stderr.strip()[-1500:] or done.returncode}")
    return done.stdout
