"""Play the machine that is lent, and run the commands of tests/gpu/README.md on it.

    python -m tests.gpu.rehearse A --python /usr/bin/python3.12
    python -m tests.gpu.rehearse B --python /usr/bin/python3.12

It has what such a machine has: that Python with torch 2.11 and the packages of ``there.txt``, no
network, 64 MiB a command, 30 idle seconds before it forgets everything, and 8 files of 16 MiB on
the way back. It has no GPU and fewer cores: the commands run with ``--no-gpu``, and their seconds
are multiplied by ``--scale``. Needs root (namespaces) and ``ip`` of iproute2.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tests.gpu import wheels
from tests.gpu.run import pack
from tests.support.conda_versions import ROOT

README = Path(__file__).with_name("README.md")
HOME = ROOT / "build" / "rehearsal"
TORCH = ("torch==2.11.0", "torchvision==0.26.0")
MIB = 2**20
#: What the machine allows.
COMMAND_CHARACTERS, CARRIED_PATHS, CARRIED_BYTES = 2000, 8, 64 * MIB
IDLE_SECONDS, COMMAND_SECONDS = 30.0, 600.0
FILES, FILE_BYTES, ALL_BYTES, FOLDERS = 8, 16 * MIB, 64 * MIB, 2
TAIL = 12_000
#: Cores of such a machine.
CORES = 16
#: Seconds that a start is taken to cost, of what there is in all.
START_SECONDS, DEVICE_SECONDS = 120.0, 900.0


class RefusedError(Exception):
    """Why the machine does not run a command, in one sentence."""


@dataclass(frozen=True)
class Command:
    """A row of the README's table."""

    name: str
    carry: tuple[str, ...]
    seconds: float
    text: str

    def scaled(self, scale: float) -> Command:
        """Return it for a machine without a GPU that is so many times slower."""

        def longer(match: re.Match[str]) -> str:
            return f"--seconds {float(match[1]) * scale:.0f} --no-gpu --scale {scale:g}"

        text = re.sub(r"--seconds (\d+)", longer, self.text)
        return Command(self.name, self.carry, self.seconds * scale, text)


def commands(plan: str, text: str) -> list[Command]:
    """Return the rows of a plan in the README: name, carried paths, time limit, command."""
    row = re.compile(rf"^\| ({plan}\d) \|(.*?)\| (\d+) \| `(.+)` \|$", re.M)
    return [
        Command(name, tuple(re.findall(r"`([^`]+)`", carry)), float(seconds), command)
        for name, carry, seconds, command in row.findall(text)
    ]


@dataclass(frozen=True)
class Result:
    """What comes back from a command."""

    code: int
    seconds: float
    carried: int  #: bytes
    tail: str
    files: tuple[Path, ...]
    left_out: tuple[str, ...]
    not_carried: tuple[str, ...]  #: paths that were named and are not there


@dataclass
class Machine:
    """A machine that runs one command at a time, and forgets everything when it is idle.

    Attributes
    ----------
    folder
        Where it keeps what it has: the tree, ``$TMPDIR``, ``$HOME``, ``$OUT``.
    python
        The folder of its Python's ``bin``.
    tree
        The checkout whose files travel.
    """

    folder: Path
    python: Path
    tree: Path = ROOT
    idle_seconds: float = IDLE_SECONDS
    starts: int = field(default=0, init=False)
    _ended: float | None = field(default=None, init=False)

    def run(
        self, command: str, carry: Sequence[str] = (), seconds: float = COMMAND_SECONDS
    ) -> Result:
        """Run a command in a copy of the tree.

        Raises
        ------
        RefusedError
            If the command or what it carries is too long or too large.
        """
        if len(command) > COMMAND_CHARACTERS:
            raise RefusedError(f"the command has {len(command)} of {COMMAND_CHARACTERS} characters")
        if len(carry) > CARRIED_PATHS:
            raise RefusedError(f"{len(carry)} paths are carried, {CARRIED_PATHS} are allowed")
        there = [name for name in carry if (self.tree / name).exists()]
        files = self._files(there)
        size = sum((self.tree / file).stat().st_size for file in files)
        if size > CARRIED_BYTES:
            raise RefusedError(
                f"{size / MIB:.1f} MiB would travel, {CARRIED_BYTES // MIB} are allowed"
            )
        if self._ended is None or time.monotonic() - self._ended > self.idle_seconds:
            self._forget()
        self._copy(files, carry)
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        began = time.monotonic()
        done = subprocess.run(
            self._isolated(command, seconds), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        self._ended = time.monotonic()
        kept, left_out = fitting(out)
        tail = done.stdout.decode(errors="replace")[-TAIL:]
        missing = tuple(name for name in carry if name not in there)
        return Result(done.returncode, self._ended - began, size, tail, kept, left_out, missing)

    def _files(self, carry: Sequence[str]) -> list[str]:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self.tree, capture_output=True, text=True, check=True,
        ).stdout.split("\0")  # fmt: skip
        files = [name for name in listed if name and (self.tree / name).is_file()]
        for name in carry:
            path = self.tree / name
            inside = path.rglob("*") if path.is_dir() else [path]
            files += [str(p.relative_to(self.tree)) for p in inside if p.is_file()]
        return files

    def _copy(self, files: Sequence[str], carry: Sequence[str]) -> None:
        target = self.folder / "tree"
        for name in carry:
            shutil.rmtree(target / name, ignore_errors=True)
        for name in files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.tree / name, target / name)

    def _forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("tree", "tmp", "home"):
            (self.folder / name).mkdir(parents=True)
        self.starts += 1

    def _isolated(self, command: str, seconds: float) -> list[str]:
        """Return the command line without a network, which leaves no process.

        What the machine has is at ``/mnt`` there, where paths are short enough for sockets.
        """
        variables = {
            "PATH": f"{self.python}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/mnt/home",
            "TMPDIR": "/mnt/tmp",
            "OUT": "/mnt/out",
            "LANG": "C.UTF-8",
        }
        inner = 'mount --bind "$1" /mnt && ip link set lo up && cd /mnt/tree && shift && exec "$@"'
        return [
            "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "bash", "-c", inner, "isolated", str(self.folder),
            "env", "-i", *(f"{name}={value}" for name, value in variables.items()),
            "timeout", "--kill-after=5", f"{seconds:.0f}", "bash", "-c", command,
        ]  # fmt: skip


def fitting(out: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the files of ``$OUT`` that come back, and which are left out and why."""
    kept: list[Path] = []
    left_out: list[str] = []
    total = 0
    for path in sorted(path for path in out.rglob("*") if not path.is_dir()):
        name, size = str(path.relative_to(out)), path.lstat().st_size
        parts = path.relative_to(out).parts
        reason = (
            "a link" if path.is_symlink()
            else "a folder too deep" if len(parts) - 1 > FOLDERS
            else "an odd name" if not all(re.fullmatch(r"[A-Za-z0-9._-]+", p) for p in parts)
            else "too large" if size > FILE_BYTES
            else "too many files" if len(kept) == FILES
            else "too much in all" if total + size > ALL_BYTES
            else ""
        )  # fmt: skip
        if reason:
            left_out.append(f"{name} ({reason})")
        else:
            kept.append(path)
            total += size
    return tuple(kept), tuple(left_out)


def make_python(python: str, folder: Path, uv: str) -> Path:
    """Make the machine's Python unless it is there; return the folder of its commands."""
    lock = (ROOT / "requirements.lock").read_text()
    there = set(wheels.names((Path(__file__).with_name("there.txt")).read_text()))
    locked = {m["name"] for block in wheels.blocks(lock) if (m := wheels.ENTRY.match(block))}
    wanted = [*TORCH, *sorted((there & locked) - {"torch", "torchvision", wheels.NCCL, "triton"})]
    note = folder / "made-of.txt"
    if not (note.exists() and note.read_text() == "\n".join([python, *wanted])):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([uv, "venv", "--quiet", "--python", python, str(folder)], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
        subprocess.run([*install, "pip", *wanted], check=True)
        note.write_text("\n".join([python, *wanted]))
    return folder / "bin"


def main(
    plan: Annotated[str, typer.Argument(help="A or B.")],
    python: Annotated[str, typer.Option(help="A Python 3.12.")] = "python3.12",
    scale: Annotated[
        float | None, typer.Option(min=1, help="Multiplies the seconds (default: 16 / cores).")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this command, such as B1.")] = None,
) -> None:
    """Run the commands of a plan on a machine that is played; end with 1 if one of them fails."""
    rows = commands(plan.upper(), README.read_text())
    if not rows:
        raise typer.BadParameter(f"There is no plan {plan}; there are A and B.")
    if found := shutil.which(python):
        python = found
    else:
        raise typer.BadParameter(f"There is no {python}; name a Python 3.12.", param_hint="python")
    scale = scale or max(1.0, CORES / (os.cpu_count() or CORES))
    uv = str(Path(sys.executable).with_name("uv"))
    machine = Machine(HOME / "machine", make_python(python, HOME / "python", uv))
    spent, worst = START_SECONDS, 0
    for row in rows:
        if only and row.name not in only:
            continue
        command = row.scaled(scale)
        print(f"== {row.name}, {command.seconds:.0f} s at most: {command.text}", flush=True)
        began = time.monotonic()
        try:
            result = machine.run(command.text, row.carry, command.seconds)
        except RefusedError as error:
            raise typer.BadParameter(f"{row.name}: {error}.") from None
        whole = time.monotonic() - began
        print(result.tail.rstrip())
        names = ", ".join(f"{p.name} {p.stat().st_size / MIB:.2f} MiB" for p in result.files)
        print(
            f"== {row.name} ended with {result.code} after {result.seconds:.0f} s; "
            f"{result.carried / MIB:.1f} MiB travelled, {len(result.tail)} characters came back, "
            f"files: {names or 'none'}; left out: {', '.join(result.left_out) or 'none'}; "
            f"not carried: {', '.join(result.not_carried) or 'none'}",
            flush=True,
        )
        spent += whole / (scale if "--seconds" in row.text else 1)
        worst = max(worst, result.code)
    if machine.starts != 1:
        print(f"== the machine was started {machine.starts} times")
    if (machine.folder / "out" / "report.json").exists():
        shutil.rmtree(HOME / "back", ignore_errors=True)
        pack.unpack(machine.folder / "out", HOME / "back")
        print(f"== {len(list((HOME / 'back').rglob('*')))} files unpacked in {HOME / 'back'}")
    print(
        f"== {spent:.0f} of {DEVICE_SECONDS:.0f} s, with a start of {START_SECONDS:.0f} s, and "
        f"what has a time of its own divided by {scale:g}"
    )
    raise typer.Exit(int(worst not in (0, 2)))


if __name__ == "__main__":
    os.chdir(ROOT)
    typer.run(main)
