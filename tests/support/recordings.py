"""Record on ranks what unit tests judge: what ``situations`` and ``results`` have in common."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from .parts import ROOT

DATA = ROOT / "tests" / "data"


class OutdatedError(Exception):
    """A recording that these tests cannot read, in one sentence."""


class Line(Protocol):
    """A recording: one line of a file."""

    def to_json(self) -> str: ...


R = TypeVar("R", bound=Line)


def append(path: Path, recording: Line) -> None:
    """Add a recording to a file at once: several processes do."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{recording.to_json()}\n".encode())
    os.close(file)


def write(path: Path, recordings: Iterable[R], key: Callable[[R], Hashable]) -> None:
    """Write the last recording of each key, sorted: a change of one is one changed line."""
    last = {key(recording): recording for recording in recordings}
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(last.values(), key=key)  # type: ignore[arg-type]
    path.write_text("".join(f"{recording.to_json()}\n" for recording in ordered))
    print(f"{path.name}: {len(ordered)} recordings, {path.stat().st_size / 1e6:.2f} MB")


@contextmanager
def recorded(
    plugin: str, option: str, arguments: Sequence[str]
) -> Iterator[tuple[int, list[Path]]]:
    """Run tests with a plugin that records; give pytest's exit status and the files."""
    plugins = ("tests.support.schedule", "tests.support.warm_start", plugin)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-n", "3", "--dist", "loadfile", "-q",
                   *(f"-p{name}" for name in plugins), option, folder, *arguments]  # fmt: skip
        status = subprocess.run(command, check=False).returncode
        yield status, sorted(Path(folder).glob("*.jsonl"))
