"""Fetch the lock's wheels for a machine without a network: ``python -m tests.gpu.wheels FOLDER``.

``make test-gpu WHEELS=FOLDER`` installs them there. That machine has a torch of its own, so torch
and what only torch needs stay out. The folder has parts, ``FOLDER/1``, ``FOLDER/2``, …, each small
enough to be carried; a wheel that is larger than a part is cut into ``NAME.whl.1of5``, ….
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from packaging.markers import Marker, default_environment
from packaging.utils import canonicalize_name

from tests.gpu import fatbin
from tests.gpu.run.prepare import NCCL as LIBRARY
from tests.support.conda_versions import ENTRY, ROOT, direct_dependencies

#: What any machine with a GPU that is worth the trip has by itself.
THERE = ("torch", "torchvision")
#: What no test and no notebook imports there: JupyterLab is 30 MB of pages for a browser.
NOT_IMPORTED = ("jupyterlab",)
#: What an editable install of labkit is made with.
BUILD = ("hatchling", "editables")
NCCL = "nvidia-nccl-cu13"
#: The newest glibc whose wheels are taken. pip compares each tag exactly, so it is told them all.
GLIBC = 39
MB = 1_000_000


def blocks(lock: str) -> list[str]:
    """Return the entries of a lock, each with its hashes and its ``# via`` lines."""
    found: list[str] = []
    for line in lock.splitlines(keepends=True):
        if ENTRY.match(line):
            found.append(line)
        elif found:
            found[-1] += line
    return found


def names(text: str) -> list[str]:
    """Return the packages that a file names: words, with comments from # to the end of a line."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [canonicalize_name(word) for line in lines for word in line.split()]


def where(python: str) -> dict[str, str]:
    """Return what markers see on Linux on x86-64 with this Python, such as "3.12"."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }


def chosen(
    lock: str, roots: Iterable[str], python: str, without: Collection[str] = THERE
) -> dict[str, str]:
    """Choose from a lock what ``roots`` need on such a machine.

    Parameters
    ----------
    lock
        The text of ``requirements.lock``.
    roots
        Names of the packages that are asked for.
    python
        Such as "3.12".
    without
        Names of packages that are left out, with what only they need.

    Returns
    -------
    dict
        The entry of each package, by its name.
    """
    here = where(python)
    entries, needed_by = {}, {}
    for block in blocks(lock):
        match = ENTRY.match(block)
        assert match is not None
        if match["marker"] and not Marker(match["marker"].strip()).evaluate(here):
            continue
        name = canonicalize_name(match["name"])
        # Without its marker: pip would ask this Python, not the one that the wheels are for.
        hashes = [line for line in block.splitlines(True)[1:] if "--hash=" in line]
        entries[name] = f"{match['name']}=={match['version']} \\\n" + "".join(hashes)
        needed_by[name] = set(re.findall(r"^    #(?: via)? +([a-z0-9-]+)(?:\[.*\])?$", block, re.M))
    taken = {canonicalize_name(name) for name in roots} & set(entries) - set(without)
    while more := {
        name for name in entries if name not in taken | set(without) and needed_by[name] & taken
    }:
        taken |= more
    return {name: entries[name] for name in sorted(taken)}


def platforms() -> list[str]:
    """List the tags of Linux on x86-64, the ones that most machines can use first."""
    old = ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64"]
    return [*old, *(f"manylinux_2_{minor}_x86_64" for minor in range(5, GLIBC + 1))]


def download(entries: Iterable[str], python: str, folder: Path) -> None:
    """Fetch the wheels of some entries of the lock by pip, which checks their hashes.

    Raises
    ------
    subprocess.CalledProcessError
        If pip cannot; it has said why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch, "requirements.txt")
        requirements.write_text("".join(entries))
        flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        flags += ["--require-hashes", "--implementation=cp", f"--python-version={python}"]
        flags += [f"--platform={tag}" for tag in platforms()]
        command = [sys.executable, "-m", "pip", "download", *flags]
        subprocess.run([*command, "-r", str(requirements), "-d", str(folder)], check=True)


def lay_out(wheels: Sequence[Path], folder: Path, limit: int, first: int = 1) -> int:
    """Move wheels into parts ``folder/first``, … of at most ``limit`` bytes; cut what is larger.

    Returns the number of the last part.
    """
    pieces: list[tuple[str, bytes]] = []
    for wheel in wheels:
        content = wheel.read_bytes()
        count = -(-len(content) // limit)
        names = [f"{wheel.name}.{i + 1}of{count}" for i in range(count)]
        names = names if count > 1 else [wheel.name]
        pieces += [(name, content[i * limit : (i + 1) * limit]) for i, name in enumerate(names)]
        wheel.unlink()
    parts: list[int] = []
    for name, content in sorted(pieces, key=lambda piece: -len(piece[1])):
        fits = (i for i, used in enumerate(parts) if used + len(content) <= limit)
        index = next(fits, len(parts))
        if index == len(parts):
            parts.append(0)
        parts[index] += len(content)
        part = folder / str(first + index)
        part.mkdir(parents=True, exist_ok=True)
        (part / name).write_bytes(content)
    return first + len(parts) - 1


def main(
    folder: Annotated[Path, typer.Argument(help="An empty or new folder.")],
    python: Annotated[str, typer.Option(help="Python's version there.")] = "3.12",
    part: Annotated[int, typer.Option(min=1, help="Size of a part, in MB.")] = 45,
    nccl: Annotated[bool, typer.Option(help="NCCL too, in parts of its own.")] = False,
    capability: Annotated[
        int | None, typer.Option(min=50, help="NCCL's code for these GPUs only: 90 is Hopper's.")
    ] = None,
    there: Annotated[
        Path | None, typer.Option(help="A file that names the packages that the machine has.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="One more package that it has; repeat it.")
    ] = None,
) -> None:
    """Fetch the lock's wheels for a machine with torch and without a network."""
    if folder.exists() and any(folder.iterdir()):
        raise typer.BadParameter(f"{folder} is not empty", param_hint="folder")
    lock = (ROOT / "requirements.lock").read_text()
    dependencies = direct_dependencies(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    left_out = {*THERE, *NOT_IMPORTED, *map(canonicalize_name, without or ())}
    if there is not None:
        try:
            left_out |= set(names(there.read_text()))
        except OSError as error:
            raise typer.BadParameter(f"{there}: {error.strerror}", param_hint="there") from None
    rounds = [list(chosen(lock, [*dependencies, *BUILD], python, left_out).values())]
    if nccl:
        rounds.append(list(chosen(lock, [NCCL], python).values()))
    last = 0
    for entries in rounds:
        with tempfile.TemporaryDirectory() as scratch:
            download(entries, python, Path(scratch))
            if capability is not None:
                for wheel in Path(scratch).glob("nvidia_nccl*.whl"):
                    fatbin.shrink(wheel, LIBRARY, capability)
            last = lay_out(sorted(Path(scratch).iterdir()), folder, part * MB, last + 1)
    for number in range(1, last + 1):
        files = list((folder / str(number)).iterdir())
        size = sum(file.stat().st_size for file in files) / MB
        typer.echo(f"{folder / str(number)}: {len(files)} files, {size:.1f} MB")


if __name__ == "__main__":
    typer.run(main)
