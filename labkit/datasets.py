"""Find MNIST: the full set where it can be had, else the 5,000 images that the course ships.

    train_set = labkit.datasets.mnist(train=True, size="subset")     # a torchvision dataset
    images, labels = labkit.datasets.mnist_tensors(train=True)       # all of it as two tensors

Nothing here needs a process group: any number of processes may call it at once, and on each
host exactly one of them downloads. torchvision takes seconds to import, so that is done inside
the functions that need it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import LabError

if TYPE_CHECKING:
    import torch
    from torchvision.datasets import MNIST

#: Images of each size: (train, test).
COUNTS = {"full": (60_000, 10_000), "subset": (4_000, 1_000)}
#: Compressed size of the full set, bytes.
DOWNLOAD_BYTES = 11_594_722
#: Seconds for the first answer of a server, for each further one, and for the whole download.
PROBE_SECONDS, READ_SECONDS, DOWNLOAD_SECONDS = 2.0, 15.0, 240.0
#: Seconds that a process waits for the one that downloads: longer than that one may take.
WAIT_SECONDS = DOWNLOAD_SECONDS + 60
#: Seconds for which every process believes another's failure, so that all ranks of a job get
#: the same data.
FAILURE_SECONDS = 60.0

PACKAGE = Path(__file__).resolve().parent

_given_up: dict[Path, str] = {}  # data folder -> why this process has no full set there
_announced = False


def mnist(
    train: bool = True,
    size: str = "full",
    root: str | os.PathLike[str] | None = None,
    transform: Callable[[Any], Any] | None = None,
) -> MNIST:
    """Return MNIST as a ``torchvision.datasets.MNIST``.

    Parameters
    ----------
    train
        True for the training images, False for the test images.
    size
        "full": 60,000 and 10,000 images, downloaded once if they are not here; without a network
        the subset, with a message that says so. "subset": the 4,000 and 1,000 images that come
        with the course, never a network.
    root
        The data folder. None: ``$LABKIT_DATA``, else ``data`` or ``../data`` if MNIST is there,
        else the folder that came with labkit.
    transform
        What makes an item's image out of a PIL image. None: a float tensor from 0 (background)
        to 1 (ink), of shape (1, 28, 28).

    Raises
    ------
    LabError
        If an argument is wrong, files are missing or damaged, or ``root`` cannot take the full
        set.
    """
    folder, _ = _locate(train, size, root)
    from torchvision.datasets import MNIST

    return MNIST(folder, train=train, transform=transform or to_tensor)


def mnist_tensors(
    train: bool = True, size: str = "full", root: str | os.PathLike[str] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return MNIST as two tensors: much faster than one item at a time, and without torchvision.

    Parameters as in :func:`mnist`.

    Returns
    -------
    images, labels
        float32 from 0 to 1, shape (N, 1, 28, 28), 3 KiB an image; int64, shape (N,).
    """
    folder, found = _locate(train, size, root)
    import torch

    part, count = ("train", COUNTS[found][0]) if train else ("t10k", COUNTS[found][1])
    raw = folder / "MNIST" / "raw"
    images = bytearray((raw / f"{part}-images-idx3-ubyte").read_bytes())
    labels = bytearray((raw / f"{part}-labels-idx1-ubyte").read_bytes())
    pixels = torch.frombuffer(images, dtype=torch.uint8, offset=16).reshape(count, 1, 28, 28)
    return pixels / 255, torch.frombuffer(labels, dtype=torch.uint8, offset=8).long()


def to_tensor(image: Any) -> torch.Tensor:
    """Turn a PIL image into a float tensor (1, 28, 28) from 0 to 1.

    The same bits as torchvision's ``ToTensor``, in a third of the time.
    """
    import numpy as np
    import torch

    return torch.from_numpy(np.array(image)).unsqueeze(0) / 255


# -- where it is --------------------------------------------------------------------------------


def _locate(train: object, size: object, root: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """Return the folder to read and the size that is in it."""
    if not isinstance(train, bool):
        raise LabError(f"train is True (training images) or False (test images), not {train!r}.")
    if not isinstance(size, str) or size not in COUNTS:
        raise LabError(f'size is "full" or "subset", not {size!r}.')
    places = [Path(root).expanduser()] if root is not None else folders()
    if size == "subset":
        return _subset(places), "subset"
    for place in places:
        for folder in (place / "full", place):
            if not problem(folder, "full"):
                return folder, "full"
    home = places[0]
    why = _given_up.get(home.resolve())
    if why is None:
        why = _get_full(home, strict=root is not None)
    if why is None:
        return home / "full", "full"
    _given_up[home.resolve()] = why
    folder = _subset([*places, *folders()])
    _announce(why)
    return folder, "subset"


def folders() -> list[Path]:
    """List the data folders to look in, best first.

    Raises
    ------
    LabError
        If there is none, or LABKIT_DATA names no folder.
    """
    places = [Path("data"), Path("..", "data"), PACKAGE.parent / "data", PACKAGE / "_course/data"]
    places = [place for place in places if (place / "MNIST" / "raw").is_dir()]
    if named := os.environ.get("LABKIT_DATA"):
        if not Path(named).is_dir():
            raise LabError(f"The variable LABKIT_DATA names no folder: {named}.")
        places.insert(0, Path(named))
    if not places:
        raise LabError(
            "There is no MNIST in data or ../data, and none came with labkit: set the variable "
            "LABKIT_DATA to the data folder of the course."
        )
    return places


def _subset(places: list[Path]) -> Path:
    """Return the first folder with a sound subset; LabError says what is wrong with the first."""
    for place in places:
        if not problem(place, "subset"):
            return place
    raise LabError(
        f"The MNIST subset in {places[0]} cannot be used: {problem(places[0], 'subset')}. Take "
        "the folder data/MNIST from the course again, or make it with data/make_mnist_subset.py."
    )


def problem(folder: Path, size: str) -> str:
    """Say which file of a set is missing or has a wrong length; nothing if all are right."""
    for name, expected in _lengths(size).items():
        path = folder / "MNIST" / "raw" / name
        if not path.is_file():
            return f"{name} is missing"
        if (length := path.stat().st_size) != expected:
            return f"{name} has {length:,} bytes instead of {expected:,}"
    return ""


def _lengths(size: str) -> dict[str, int]:
    """Return the length of each file in bytes: a header, then a byte a pixel or a label."""
    lengths = {}
    for part, count in zip(("train", "t10k"), COUNTS[size], strict=True):
        lengths[f"{part}-images-idx3-ubyte"] = 16 + 28 * 28 * count
        lengths[f"{part}-labels-idx1-ubyte"] = 8 + count
    return lengths


def _announce(why: str) -> None:
    """Say once that this is the subset, on one rank only if there are ranks."""
    global _announced
    already, _announced = _announced, True
    dist = sys.modules.get("torch.distributed")
    rank = dist.get_rank() if dist and dist.is_available() and dist.is_initialized() else 0
    if rank == 0 and not already:
        train, test = COUNTS["subset"]
        print(
            f"labkit: this is the MNIST subset of the course ({train:,} training and {test:,} "
            f"test images), not the full set, because {why}."
        )


# -- get the full set ---------------------------------------------------------------------------


class _DownloadError(Exception):
    """Say why the full set could not be downloaded, as the end of a sentence."""


def _get_full(home: Path, *, strict: bool) -> str | None:
    """Put the full set into ``home/full``, unless another process just did or failed.

    Returns why it is not there, or None. With ``strict``, a folder that cannot take it is a
    LabError.
    """
    from filelock import FileLock, Timeout

    full = home / "full"
    try:
        full.mkdir(exist_ok=True)
        with FileLock(full / ".lock", timeout=WAIT_SECONDS):
            if not problem(full, "full"):
                return None
            failure = full / ".failed"
            with contextlib.suppress(FileNotFoundError):
                if time.time() - failure.stat().st_mtime < FAILURE_SECONDS:
                    return failure.read_text()
            try:
                _store(full, _download())
            except _DownloadError as error:
                failure.write_text(str(error))
                return str(error)
            failure.unlink(missing_ok=True)
            return None
    except Timeout:
        return "another process is still downloading it"
    except OSError as error:
        why = f"it cannot be stored in {full} ({error.strerror or error})"
        if strict:
            raise LabError(f"The full MNIST is not here and {why}.") from error
        return why


def _store(full: Path, files: dict[str, bytes]) -> None:
    """Write the files; a name appears only with its whole content behind it."""
    for left in full.glob(".part-*"):  # of a process that was killed here
        shutil.rmtree(left)
    raw = full / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=full) as part:
        for name, content in files.items():
            Path(part, name).write_bytes(content)
        for name in files:
            os.replace(Path(part, name), raw / name)


def _download() -> dict[str, bytes]:
    """Fetch the four files into memory (55 MB), check and unpack them.

    Raises _DownloadError; with no network after ``PROBE_SECONDS``.
    """
    from torchvision.datasets import MNIST
    from tqdm import tqdm

    first = _answering(MNIST.mirrors, MNIST.resources[0][0])
    mirrors = [first, *(mirror for mirror in MNIST.mirrors if mirror != first)]
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    for mirror in mirrors:
        bar = tqdm(desc="MNIST", total=DOWNLOAD_BYTES, unit="B", unit_scale=True, file=sys.stdout)
        try:
            with bar:
                return dict(_fetch(mirror, MNIST.resources, deadline, bar.update))
        except _DownloadError as error:
            problem = error
    raise problem


def _answering(mirrors: list[str], name: str) -> str:
    """Return the mirror that answers first.

    Asked from threads: looking up a name has no timeout of its own, and can take much longer
    than ``PROBE_SECONDS`` on a machine without a network.
    """
    answers: queue.Queue[str | None] = queue.Queue()

    def ask(mirror: str) -> None:
        try:
            with _open(mirror + name, PROBE_SECONDS, "HEAD"):
                answers.put(mirror)
        except Exception:  # whatever it is, this mirror is of no use
            answers.put(None)

    for mirror in mirrors:
        threading.Thread(target=ask, args=(mirror,), daemon=True).start()
    deadline = time.monotonic() + PROBE_SECONDS
    for _ in mirrors:
        with contextlib.suppress(queue.Empty):
            if answer := answers.get(timeout=max(0.0, deadline - time.monotonic())):
                return answer
    raise _DownloadError("no server that has it can be reached")


def _fetch(
    mirror: str,
    resources: list[tuple[str, str]],
    deadline: float,
    progress: Callable[[int], Any],
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file, unpacked, its checksum and length right."""
    for packed_name, md5 in resources:
        name = packed_name.removesuffix(".gz")
        packed = bytearray()
        with _open(mirror + packed_name, READ_SECONDS) as response:
            while chunk := response.read(1 << 16):
                packed += chunk
                progress(len(chunk))
                if time.monotonic() > deadline:
                    raise _DownloadError(f"it did not arrive within {DOWNLOAD_SECONDS:.0f} s")
        if hashlib.md5(packed, usedforsecurity=False).hexdigest() != md5:
            raise _DownloadError(f"{packed_name} arrived damaged")
        content = gzip.decompress(packed)
        if len(content) != _lengths("full")[name]:
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
