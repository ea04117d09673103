"""Find MNIST: the full set where it can be had, else the 5,000 images that the course ships.

>>> train_set = labkit.datasets.mnist(train=True, size="subset")  # a torchvision dataset
>>> images, labels = labkit.datasets.mnist_tensors(True, "subset")  # all of it as two tensors
>>> len(train_set) == len(images) == 4000
True

Nothing here needs a process group: any number of processes may call it at once, and on each
host exactly one of them downloads. torchvision takes seconds to import, so that is done inside
the functions that need it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import versions
from ..base.errors import DataError, UsageError
from . import download

if TYPE_CHECKING:
    import torch
    from torchvision.datasets import MNIST

__all__ = ["mnist", "mnist_tensors", "to_tensor"]

#: Images of each size: (train, test).
COUNTS = {"full": (60_000, 10_000), "subset": (4_000, 1_000)}

PACKAGE = Path(__file__).resolve().parents[1]

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
    UsageError
        If an argument is wrong.
    DataError
        If files are missing or damaged, or ``root`` cannot take the full set.

    Examples
    --------
    >>> train_set = labkit.datasets.mnist(size="subset")
    >>> len(train_set)
    4000
    >>> image, label = train_set[0]
    >>> image.shape, label
    (torch.Size([1, 28, 28]), 8)
    """
    versions.need("course", "labkit.datasets.mnist", "torchvision")
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

    Examples
    --------
    >>> images, labels = labkit.datasets.mnist_tensors(train=False, size="subset")
    >>> images.shape, labels.shape
    (torch.Size([1000, 1, 28, 28]), torch.Size([1000]))
    >>> images.min().item(), images.max().item()
    (0.0, 1.0)
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

    Examples
    --------
    >>> from PIL import Image
    >>> labkit.datasets.to_tensor(Image.new("L", (2, 2), color=255))
    tensor([[[1., 1.],
             [1., 1.]]])
    """
    import numpy as np
    import torch

    return torch.from_numpy(np.array(image)).unsqueeze(0) / 255


# -- where it is --------------------------------------------------------------------------------


def _locate(train: object, size: object, root: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """Return the folder to read and the size that is in it."""
    if not isinstance(train, bool):
        raise UsageError(
            f"train must be True (training images) or False (test images), got {train!r}."
        )
    if not isinstance(size, str) or size not in COUNTS:
        raise UsageError(f'size must be "full" or "subset", got {size!r}.')
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
    DataError
        If there is none, or LABKIT_DATA names no folder.
    """
    places = [Path("data"), Path("..", "data"), PACKAGE.parent / "data", PACKAGE / "_course/data"]
    places = [place for place in places if (place / "MNIST" / "raw").is_dir()]
    if named := os.environ.get("LABKIT_DATA"):
        if not Path(named).is_dir():
            raise DataError(f"The variable LABKIT_DATA names no folder: {named}.")
        places.insert(0, Path(named))
    if not places:
        raise DataError(
            "There is no MNIST in data or ../data, and none came with labkit: set the variable "
            "LABKIT_DATA to the data folder of the course."
        )
    return places


def _subset(places: list[Path]) -> Path:
    """Return the first folder with a sound subset; DataError says what is wrong with the first."""
    for place in places:
        if not problem(place, "subset"):
            return place
    raise DataError(
        f"The MNIST subset in {places[0]} cannot be used: {problem(places[0], 'subset')}. Take "
        "the folder data/MNIST from the course again, or make it with data/make_mnist_subset.py."
    )


def problem(folder: Path, size: str) -> str:
    """Return which file of a set is missing or has a wrong length; nothing if all are right."""
    return download.problem(folder, _lengths(size))


def _lengths(size: str) -> dict[str, int]:
    """Return the length of each file in bytes: a header, then a byte a pixel or a label."""
    lengths = {}
    for part, count in zip(("train", "t10k"), COUNTS[size], strict=True):
        lengths[f"{part}-images-idx3-ubyte"] = 16 + 28 * 28 * count
        lengths[f"{part}-labels-idx1-ubyte"] = 8 + count
    return lengths


def _announce(why: str) -> None:
    """Report once that this is the subset, on one rank only if there are ranks."""
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


def _get_full(home: Path, *, strict: bool) -> str | None:
    """Put the full set into ``home/full``; return why it is not there, or None.

    With ``strict``, a folder that cannot take it is a DataError.
    """
    try:
        return download.get(home / "full", _lengths("full"))
    except OSError as error:
        why = f"it cannot be stored in {home / 'full'} ({error.strerror or error})"
        if strict:
            raise DataError(f"The full MNIST is not here and {why}.") from error
        return why
