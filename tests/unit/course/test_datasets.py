"""MNIST: the shipped subset is what it says, and the full set arrives once or not at all."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from labkit import DataError, UsageError
from labkit.base import times
from labkit.course import datasets, download
from tests.support.mnist_mirror import Mirror, idx_files
from tests.support.others import as_nobody, as_root, open_folder, reachable

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "data"


def write_set(folder: Path, files: dict[str, bytes]) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in files.items():
        (raw / name).write_bytes(content)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Let torchvision's MNIST be the tiny one of a server on this machine."""
    from torchvision.datasets import MNIST

    served = Mirror()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(MNIST, "mirrors", [served.url])
    monkeypatch.setattr(MNIST, "resources", served.resources)
    monkeypatch.setitem(datasets.COUNTS, "full", served.counts)
    yield served
    served.close()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process learnt in the test before."""
    monkeypatch.setattr(datasets, "_given_up", {})
    monkeypatch.setattr(datasets, "_announced", False)
    monkeypatch.delenv("LABKIT_DATA", raising=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A data folder with the subset."""
    shutil.copytree(DATA / "MNIST", tmp_path / "data" / "MNIST")
    return tmp_path / "data"


# -- the shipped files --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """The script that made the files."""
    spec = importlib.util.spec_from_file_location("maker", DATA / "make_mnist_subset.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_match_their_checksums(maker: ModuleType) -> None:
    listed = {line.split("  ")[1] for line in (DATA / "SHA256SUMS").read_text().splitlines()}
    assert listed == {"LICENSE-BSD3.txt"} | {f"MNIST/raw/{n}" for n in idx_files(1, 1)}
    assert maker.check(DATA) == []


def test_splits_are_balanced_and_disjoint() -> None:
    seen = []
    for train, each in ((True, 400), (False, 100)):
        images, labels = datasets.mnist_tensors(train, size="subset")
        assert labels.bincount().tolist() == [each] * 10
        seen += [image.numpy().tobytes() for image in images]
        # Shuffled: every hundred in a row has every digit, none of them very often.
        for hundred in labels.split(100):
            assert 1 <= hundred.bincount(minlength=10).min() < hundred.bincount().max() <= 25
    assert len(set(seen)) == len(seen) == 5000


def test_split_does_not_depend_on_the_order_of_the_table(maker: ModuleType) -> None:
    rows = [bytes([i % 251, i // 251] + [0] * 782 + [i % 10]) for i in range(5000)]
    train, test = maker.split(rows)
    assert (train, test) == maker.split(rows[::-1])
    assert Counter(row[-1] for row in test) == dict.fromkeys(range(10), 100)
    assert sorted(train + test) == sorted(rows)


# -- what a learner gets ------------------------------------------------------------------------


@pytest.mark.parametrize(("train", "count"), [(True, 4000), (False, 1000)])
def test_mnist_is_torchvisions(train: bool, count: int) -> None:
    from torchvision.datasets import MNIST
    from torchvision.transforms import ToTensor

    data = datasets.mnist(train, size="subset")
    assert isinstance(data, MNIST)
    assert len(data) == count
    image, label = data[7]
    assert (image.dtype, image.shape, type(label)) == (torch.float32, (1, 28, 28), int)
    assert (image.min(), image.max()) == (0, 1)
    plain = MNIST(DATA, train=train, transform=ToTensor())
    assert torch.equal(image, plain[7][0])
    assert label == plain[7][1]


def test_tensors_hold_what_the_dataset_holds() -> None:
    images, labels = datasets.mnist_tensors(False, size="subset")
    assert (images.dtype, images.shape) == (torch.float32, (1000, 1, 28, 28))
    assert (labels.dtype, labels.shape) == (torch.int64, (1000,))
    data = datasets.mnist(False, size="subset")
    for i in (0, 1, 500, 999):
        assert torch.equal(images[i], data[i][0])
        assert labels[i] == data[i][1]


def test_importing_it_imports_neither_torch_nor_torchvision() -> None:
    code = """if True:
        import sys, labkit.course.datasets as d
        print("torch" in sys.modules)
        d.mnist_tensors(size="subset")
        print("torchvision" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_wrong_arguments_are_named() -> None:
    for size in ("half", "Full", 5000, None):
        with pytest.raises(UsageError, match=f'^size must be "full" or "subset", got {size!r}'):
            datasets.mnist(size=size)  # type: ignore[arg-type]
    for train in ("test", 1, None):
        with pytest.raises(UsageError, match=f"^train must be True .*, got {train!r}"):
            datasets.mnist_tensors(train)  # type: ignore[arg-type]


# -- where it looks -----------------------------------------------------------------------------


def test_what_is_missing_or_damaged_is_named(place: Path) -> None:
    raw = place / "MNIST" / "raw"

    def refused(root: Path) -> str:
        with pytest.raises(DataError) as caught:
            datasets.mnist_tensors(size="subset", root=root)
        assert "make_mnist_subset.py" in str(caught.value)
        return str(caught.value)

    (raw / "t10k-labels-idx1-ubyte").unlink()
    assert f"in {place} cannot be used: t10k-labels-idx1-ubyte is missing." in refused(place)
    (raw / "train-images-idx3-ubyte").write_bytes(bytes(1000))
    said = "train-images-idx3-ubyte has 1,000 bytes instead of 3,136,016"
    assert said in refused(place)
    assert f"in {place / 'nowhere'} cannot be used" in refused(place / "nowhere")


def test_search_order(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "elsewhere").mkdir()

    def first() -> Path:
        return datasets.folders()[0]

    monkeypatch.chdir(tmp_path / "notebooks")
    (tmp_path / "notebooks" / "data").mkdir()  # without MNIST, so it is passed over
    assert first() == Path("../data")
    monkeypatch.chdir(tmp_path)
    assert first() == Path("data")
    monkeypatch.setenv("LABKIT_DATA", "/no/such/folder")
    with pytest.raises(DataError, match="LABKIT_DATA names no folder: /no/such/folder"):
        first()
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "elsewhere"))
    assert first() == tmp_path / "elsewhere"
    monkeypatch.delenv("LABKIT_DATA")
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.rmtree(place)
    assert first() == DATA
    # An installed wheel: no data beside the package, but inside it.
    monkeypatch.setattr(datasets, "PACKAGE", tmp_path / "site" / "labkit")
    with pytest.raises(DataError, match=r"There is no MNIST in data or \.\./data"):
        first()
    shutil.copytree(DATA / "MNIST", tmp_path / "site" / "labkit" / "_course" / "data" / "MNIST")
    assert first() == tmp_path / "site" / "labkit" / "_course" / "data"
    assert len(datasets.mnist_tensors(False, size="subset")[0]) == 1000


# -- the full set -------------------------------------------------------------------------------


def test_full_set_is_downloaded_into_full(
    place: Path, mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    data = datasets.mnist(True, root=place)
    assert (len(data), Path(data.root)) == (40, place / "full")
    images, labels = datasets.mnist_tensors(False, root=place)
    assert len(images) == len(labels) == 10
    assert torch.equal(images, torch.full((10, 1, 28, 28), 2 / 255))
    assert mirror.gets() == sorted(mirror.packed)
    assert sorted(p.name for p in (place / "full").iterdir()) == [".lock", "MNIST"]
    out = capsys.readouterr().out
    assert "MNIST:" in out  # the progress bar
    assert "labkit:" not in out


def test_full_set_in_the_folder_itself_is_used(tmp_path: Path, mirror: Mirror) -> None:
    write_set(tmp_path, idx_files(40, 10))
    assert len(datasets.mnist_tensors(root=tmp_path)[0]) == 40
    assert mirror.requests == []


def test_what_a_killed_download_left_is_cleared(place: Path, mirror: Mirror) -> None:
    write_set(place / "full", {".12ab.part": b"half", "train-labels-idx1-ubyte": b"half"})
    assert len(datasets.mnist_tensors(root=place)[0]) == 40
    left = (place / "full" / "MNIST" / "raw").iterdir()
    assert sorted(path.name for path in left) == sorted(idx_files(1, 1))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("gone", "the download broke off (HTTP Error 404: Not Found)"),
        ("damaged", "t10k-images-idx3-ubyte.gz arrived damaged"),
        ("length", "t10k-images-idx3-ubyte.gz has another length than it should"),
    ],
)
def test_half_a_download_is_none(
    fault: str, why: str, place: Path, mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "t10k-images-idx3-ubyte.gz"  # the third of four
    if fault == "gone":
        del mirror.packed[name]
    elif fault == "damaged":
        mirror.packed[name] = mirror.packed[name][:-1]
    else:
        mirror.packed[name] = gzip.compress(b"short")
        mirror.resources[2] = (name, hashlib.md5(mirror.packed[name]).hexdigest())
    assert len(datasets.mnist_tensors(root=place)[0]) == 4000
    assert f"(4,000 training and 1,000 test images), not the full set, because {why}." in (
        capsys.readouterr().out
    )
    assert not (place / "full" / "MNIST").exists()


def test_a_failure_is_remembered_for_a_while(
    place: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, mirror.packed = mirror.packed, {}
    assert len(datasets.mnist_tensors(root=place)[0]) == 4000
    assert len(datasets.mnist_tensors(False, root=place)[0]) == 1000
    assert capsys.readouterr().out.count("labkit:") == 1  # once a process
    asked = len(mirror.requests)
    # Another process, a moment later: believes the first one.
    mirror.packed = packed
    monkeypatch.setattr(datasets, "_given_up", {})
    assert len(datasets.mnist_tensors(root=place)[0]) == 4000
    assert len(mirror.requests) == asked
    # And later still: asks again.
    past = time.time() - times.FAILURE_BELIEVED - 1
    os.utime(place / "full" / ".failed", (past, past))
    monkeypatch.setattr(datasets, "_given_up", {})
    assert len(datasets.mnist_tensors(root=place)[0]) == 40
    assert not (place / "full" / ".failed").exists()


def test_second_mirror_helps_where_the_first_is_damaged(
    place: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import MNIST

    bad = Mirror()
    try:
        bad.packed["train-labels-idx1-ubyte.gz"] = b"<html>moved</html>"
        monkeypatch.setattr(MNIST, "mirrors", [bad.url, mirror.url])
        monkeypatch.setattr(download, "_answering", lambda mirrors, name: bad.url)
        assert len(datasets.mnist_tensors(root=place)[0]) == 40
        assert bad.gets() == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
        assert mirror.gets() == sorted(mirror.packed)
    finally:
        bad.close()


def test_a_network_that_swallows_everything_costs_little(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchvision.datasets import MNIST

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(MNIST, "mirrors", [url, url])
        monkeypatch.setattr(times, "SERVER_FOUND", 0.2)
        start = time.monotonic()
        assert len(datasets.mnist_tensors(root=place)[0]) == 4000
        assert time.monotonic() - start < times.SERVER_ANSWER
    assert "because no server that has it can be reached." in capsys.readouterr().out


def test_waiting_for_another_process_is_bounded(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from filelock import FileLock

    (place / "full").mkdir()
    monkeypatch.setattr(times, "DOWNLOADED_ELSEWHERE", 0.1)
    with FileLock(place / "full" / ".lock"):
        assert len(datasets.mnist_tensors(root=place)[0]) == 4000
    assert "another process is still downloading it" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["file in the way", "read-only"])
def test_folder_that_cannot_take_it(
    how: str,
    place: Path,
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if how == "file in the way":
        (place / "full").write_text("")
        why = "File exists"
    else:  # to root, who runs CI, no folder is read-only
        why = "Read-only file system"

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise OSError(30, why)

        monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataError, match=rf"cannot be stored in {place}/full \({why}\)"):
        datasets.mnist(root=place)
    monkeypatch.setenv("LABKIT_DATA", str(place))
    assert len(datasets.mnist()) == 4000
    assert f"because it cannot be stored in {place}/full ({why})." in capsys.readouterr().out
    assert mirror.gets() == []


@as_root
def test_the_full_set_is_not_stored_where_somebody_else_leads(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    data = open_folder(reachable(tmp_path) / "data")
    as_nobody("mkdir", "-m", "777", data / "full")
    as_nobody("ln", "-s", precious, data / "full" / ".lock")
    with pytest.raises(OSError, match=r"full/\.lock is a link that was made by user"):
        download.get(data / "full", {"train": 1})
    assert precious.read_text() == "mine"
