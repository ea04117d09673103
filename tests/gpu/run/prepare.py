"""Make the environment of ``make test-gpu WHEELS=FOLDER``, without a network, then run it.

``python3 -m tests.gpu.run.prepare FOLDER [options of tests.gpu.run]``, by the Python that has
torch. Needs nothing beyond Python and pip. The environment is one of its own: it sees torch and
whatever else this Python has, and changes nothing of it.

``python3 -m tests.gpu.run.prepare FOLDER --begin`` makes it and starts one rank, while the parts of
NCCL are still on their way: what cannot work here shows, and the disk is warm for what comes next.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: What is made here; git ignores it.
HOME = ROOT / "build" / "gpu"
#: A piece of a wheel that was too large to be carried.
PIECE = re.compile(r"(?P<wheel>.+\.whl)\.(?P<number>\d+)of(?P<count>\d+)")
#: The library in NCCL's wheel. It is laid beside the environment, not installed: torch has one
#: by itself, and whether this one takes its place is for the runner to say (LD_PRELOAD).
NCCL = "libnccl.so.2"
BEGIN = "--begin"


class PrepareError(Exception):
    """Why there is no environment, in one sentence."""


def gather(folder: Path, target: Path, *, partial: bool = False) -> list[Path]:
    """Find the wheels of a folder and its parts; join those that were cut, into ``target``.

    ``partial``: pass over a wheel of which pieces are still missing.

    Raises
    ------
    PrepareError
        If there is none, or a piece of one is missing.
    """
    if not folder.is_dir():
        raise PrepareError(f"There is no folder {folder}.")
    wheels = sorted(folder.rglob("*.whl"))
    pieces: dict[str, dict[int, Path]] = {}
    counts: dict[str, int] = {}
    for path in folder.rglob("*.whl.*of*"):
        if match := PIECE.fullmatch(path.name):
            pieces.setdefault(match["wheel"], {})[int(match["number"])] = path
            counts[match["wheel"]] = int(match["count"])
    for name, found in pieces.items():
        numbers = range(1, counts[name] + 1)
        if missing := [number for number in numbers if number not in found]:
            if partial:
                continue
            lost = ", ".join(map(str, missing))
            raise PrepareError(f"{name}: of {counts[name]} pieces, these are not there: {lost}.")
        target.mkdir(parents=True, exist_ok=True)
        with open(target / name, "wb") as whole:
            for number in numbers:
                whole.write(found[number].read_bytes())
        wheels.append(target / name)
    if not wheels:
        raise PrepareError(f"There are no wheels in {folder}.")
    return wheels


def lay_nccl(wheel: Path, folder: Path) -> None:
    """Lay the library of NCCL's wheel into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(f"/{NCCL}"))
        (folder / NCCL).write_bytes(content.read(name))


def of_this_python() -> list[str]:
    """List the folders from which this Python imports packages, a virtual environment's too."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def make_environment(folder: Path, wheels: Sequence[Path]) -> Path:
    """Make a virtual environment with these wheels and labkit; return its Python.

    Raises
    ------
    PrepareError
        If pip cannot install them.
    """
    venv.EnvBuilder(clear=True, symlinks=True, with_pip=False).create(folder)
    python = folder / "bin" / "python"
    (own,) = folder.glob("lib/python*/site-packages")
    # Not `system_site_packages`: that is the system's, and this Python may be an environment too.
    (own / "this_python.pth").write_text("".join(f"{path}\n" for path in of_this_python()))
    pip = _pip(python)
    flags = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]
    # Our versions go in whatever this Python has: --ignore-installed touches nothing of it.
    _run([*pip, "install", *flags, "--ignore-installed", *map(str, wheels)])
    _run([*pip, "install", *flags, "--no-build-isolation", "--editable", str(ROOT)])
    compiling = [str(python), "-m", "compileall", "-q", "-j", "0", str(own)]
    subprocess.run(compiling, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return python


def _pip(python: Path) -> list[str]:
    """Return the command of a pip that installs into the environment of ``python``."""
    flags = ["--isolated", "--disable-pip-version-check"]
    here = [sys.executable, "-m", "pip"]
    if subprocess.run([*here, "--version"], check=False, capture_output=True).returncode == 0:
        return [*here, *flags, "--python", str(python)]
    _run([str(python), "-m", "ensurepip"])
    return [str(python), "-m", "pip", *flags]


def _run(command: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-15:]
        raise PrepareError("\n".join(["The environment cannot be made:", *lines]))


def stamp(wheels: Sequence[Path]) -> str:
    """Return what something is made of: what has another stamp is made anew."""
    sizes = (f"{wheel.name} {wheel.stat().st_size}" for wheel in wheels)
    made_with = [sys.executable, sys.version, (ROOT / "pyproject.toml").read_text()]
    return "\n".join([*sorted(sizes), *made_with])


def is_new(note: Path, text: str) -> bool:
    """Return whether a note says something else than this; remove it then."""
    if note.exists() and note.read_text() == text:
        return False
    note.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    return True


def main(arguments: Sequence[str]) -> None:
    """Make the environment unless it is there; become the runner in it."""
    began = time.time()
    if not arguments or arguments[0].startswith("-"):
        sys.exit("usage: python3 -m tests.gpu.run.prepare FOLDER-OF-WHEELS [options]")
    begin = BEGIN in arguments
    try:
        wheels = gather(Path(arguments[0]), HOME / "joined", partial=begin)
        nccl = [wheel for wheel in wheels if wheel.name.startswith("nvidia_nccl")]
        wheels = [wheel for wheel in wheels if wheel not in nccl]
        python = HOME / "venv" / "bin" / "python"
        if is_new(HOME / "nccl.txt", stamp(nccl)):
            (HOME / "nccl" / NCCL).unlink(missing_ok=True)
            for wheel in nccl:
                lay_nccl(wheel, HOME / "nccl")
            (HOME / "nccl.txt").write_text(stamp(nccl))
        if is_new(HOME / "venv.txt", stamp(wheels)) or not python.exists():
            make_environment(HOME / "venv", wheels)
            (HOME / "venv.txt").write_text(stamp(wheels))
        shutil.rmtree(HOME / "joined", ignore_errors=True)
    except PrepareError as error:
        sys.exit(f"test-gpu: {error}")
    print(f"test-gpu: the environment took {time.time() - began:.0f} s", flush=True)
    options = [option for option in arguments[1:] if option != BEGIN]
    options += ["--piece", "start-1"] if begin else []
    runner = [str(python), "-m", "tests.gpu.run", "--began", str(began), *options]
    os.chdir(ROOT)
    os.execv(runner[0], runner)


if __name__ == "__main__":
    main(sys.argv[1:])
