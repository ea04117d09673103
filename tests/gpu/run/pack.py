"""Pack what there is so far for the way back: few files, each small, renewed while all runs.

A machine that is lent gives back at most 8 files of 16 MiB, and may go at any moment. So the
report stands beside the archive, and both are written again every few seconds.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit.base.files import write_whole

#: Files that come back at most, and bytes of each; a margin below what a machine allows.
FILES, BYTES = 8, 15 * 2**20
#: Seconds between two packings.
EVERY = 10.0
#: What stands beside the archive, to be read at once.
BESIDE = ("report.json", "table.txt")
ARCHIVE = "results.tar.gz"


def pack(source: Path, target: Path) -> list[str]:
    """Pack a folder into ``target``; return the names of what was left out.

    What matters least, the executed notebooks, goes in last and is left out first.
    """
    for name in BESIDE:
        with contextlib.suppress(FileNotFoundError):
            write_whole(target / name, (source / name).read_bytes())
    paths = [path for path in source.rglob("*") if path.is_file()]
    order = sorted(paths, key=lambda path: (path.suffix == ".ipynb", path))
    room = (FILES - len(BESIDE)) * BYTES
    while True:
        content = _archive(source, order)
        if len(content) <= room or not order:
            break
        order.pop()
    pieces = [content[at : at + BYTES] for at in range(0, len(content), BYTES)]
    names = [f"{ARCHIVE}.{i + 1}of{len(pieces)}" for i in range(len(pieces))]
    names = names if len(pieces) > 1 else [ARCHIVE]
    for name, piece in zip(names, pieces, strict=True):
        write_whole(target / name, piece)
    for old in set(target.glob(f"{ARCHIVE}*")) - {target / name for name in names}:
        old.unlink()
    return [str(path.relative_to(source)) for path in paths if path not in order]


def _archive(source: Path, paths: list[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3) as tar:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                content = path.read_bytes()  # whole: a log may grow while it is being added
                info = tarfile.TarInfo(str(path.relative_to(source)))
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def unpack(folder: Path, target: Path) -> None:
    """Unpack what ``pack`` has made.

    Raises
    ------
    FileNotFoundError
        If there is no archive.
    """
    pieces = sorted(folder.glob(f"{ARCHIVE}*"), key=lambda path: (len(path.name), path.name))
    if not pieces:
        raise FileNotFoundError(f"{folder} has no {ARCHIVE}")
    content = b"".join(piece.read_bytes() for piece in pieces)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        tar.extractall(target, filter="data")


@contextmanager
def packed(source: Path, target: Path | None, every: float = EVERY) -> Iterator[None]:
    """Pack a folder again and again while the block runs, and once after it."""
    if target is None:
        yield
        return
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every):
            pack(source, target)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        pack(source, target)
