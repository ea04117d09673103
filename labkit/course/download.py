"""Download the full MNIST once on each host, however many processes ask for it.

torchvision has a download of its own, but no time limit, no lock and no whole-or-nothing.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base import times, trust, versions
from ..base.files import write_whole

#: Compressed size of the full set, bytes.
DOWNLOAD_BYTES = 11_594_722


class _DownloadError(Exception):
    """Say why the full set could not be downloaded, as the end of a sentence."""


def problem(folder: Path, lengths: Mapping[str, int]) -> str:
    """Return which file of a set is missing or has a wrong length; nothing if all are right.

    ``lengths`` has the length of each file in bytes, by name.
    """
    for name, expected in lengths.items():
        path = folder / "MNIST" / "raw" / name
        if not path.is_file():
            return f"{name} is missing"
        if (length := path.stat().st_size) != expected:
            return f"{name} has {length:,} bytes instead of {expected:,}"
    return ""


def get(full: Path, lengths: Mapping[str, int]) -> str | None:
    """Put the full set into ``full``, unless another process just did or failed.

    Returns why it is not there, or None. Raises OSError if the folder cannot take it, or another
    user leads elsewhere from there.
    """
    versions.need("course", "Downloading MNIST", "torchvision")
    from filelock import FileLock, Timeout

    raw = full / "MNIST" / "raw"
    for path in (full / ".lock", raw):
        if why := trust.unsafe_link_reason(path):
            raise OSError(errno.EPERM, why)
    full.mkdir(exist_ok=True)
    try:
        with FileLock(full / ".lock", timeout=times.DOWNLOADED_ELSEWHERE):
            if not problem(full, lengths):
                return None
            failure = full / ".failed"
            with contextlib.suppress(FileNotFoundError):
                if time.time() - failure.stat().st_mtime < times.FAILURE_BELIEVED:
                    return failure.read_text(encoding="utf-8")
            try:
                files = _download(lengths)
                for left in raw.glob(".*.part"):  # of a process that was killed here
                    left.unlink()
                for name, content in files.items():
                    write_whole(raw / name, content)
            except _DownloadError as error:
                write_whole(failure, str(error).encode())
                return str(error)
            failure.unlink(missing_ok=True)
            return None
    except Timeout:
        return "another process is still downloading it"


def _download(lengths: Mapping[str, int]) -> dict[str, bytes]:
    """Fetch the four files into memory (55 MB), check and unpack them.

    Raises _DownloadError; with no network after ``times.SERVER_FOUND``.
    """
    from torchvision.datasets import MNIST
    from tqdm import tqdm

    first = _answering(MNIST.mirrors, MNIST.resources[0][0])
    mirrors = [first, *(mirror for mirror in MNIST.mirrors if mirror != first)]
    deadline = time.monotonic() + times.DOWNLOADED
    for mirror in mirrors:
        bar = tqdm(desc="MNIST", total=DOWNLOAD_BYTES, unit="B", unit_scale=True, file=sys.stdout)
        try:
            with bar:
                return dict(_fetch(mirror, MNIST.resources, lengths, deadline, bar.update))
        except _DownloadError as error:
            failure = error
    raise failure


def _answering(mirrors: list[str], name: str) -> str:
    """Return the mirror that answers first.

    Asked from threads: looking up a name has no timeout of its own, and can take much longer
    than ``times.SERVER_FOUND`` on a machine without a network.
    """
    answers: queue.Queue[str | None] = queue.Queue()

    def ask(mirror: str) -> None:
        try:
            with _open(mirror + name, times.SERVER_FOUND, "HEAD"):
                answers.put(mirror)
        except Exception:  # whatever it is, this mirror is of no use
            answers.put(None)

    for mirror in mirrors:
        threading.Thread(target=ask, args=(mirror,), daemon=True).start()
    deadline = time.monotonic() + times.SERVER_FOUND
    for _ in mirrors:
        with contextlib.suppress(queue.Empty):
            if answer := answers.get(timeout=max(0.0, deadline - time.monotonic())):
                return answer
    raise _DownloadError("no server that has it can be reached")


def _fetch(
    mirror: str,
    resources: list[tuple[str, str]],
    lengths: Mapping[str, int],
    deadline: float,
    progress: Callable[[int], Any],
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file, unpacked, its checksum and length right."""
    for packed_name, md5 in resources:
        name = packed_name.removesuffix(".gz")
        packed = bytearray()
        with _open(mirror + packed_name, times.SERVER_ANSWER) as response:
            while chunk := response.read(1 << 16):
                packed += chunk
                progress(len(chunk))
                if time.monotonic() > deadline:
                    raise _DownloadError(f"it did not arrive within {times.DOWNLOADED:.0f} s")
        if hashlib.md5(packed, usedforsecurity=False).hexdigest() != md5:
            raise _DownloadError(f"{packed_name} arrived damaged")
        content = gzip.decompress(packed)
        if len(content) != lengths[name]:
            raise _DownloadError(f"{packed_name} has another length than it should")
        yield name, content


@contextlib.contextmanager
def _open(url: str, timeout: float, method: str = "GET") -> Iterator[Any]:
    """Open a connection; turn whatever goes wrong with it into a _DownloadError."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            yield response
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise _DownloadError(f"the download broke off ({error})") from error
