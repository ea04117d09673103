"""Divide the tests into parts that run beside each other: ``make test PART=answers``.

``make test`` runs all of them on one machine; CI gives each part a machine of its own. A file
belongs to the part with the longest beginning of its path. Runs as
``python -m tests.support.parts answers``, which lists the files of a part.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: The parts, each with the beginnings of its paths. They take about the same time.
PARTS = {
    "unit": ["tests/unit", "tests/project", "tests/tools", "tests/browser"],
    "answers": ["tests/course/test_answers.py"],
    "course": ["tests/course"],
    "notebooks": ["notebooks"],
    "deadlocks": [
        "tests/ranks/test_correct_programs.py",
        "tests/ranks/test_deadlock_programs.py",
        "tests/ranks/test_faults.py",
        "tests/ranks/test_random_programs.py",
        "tests/ranks/test_tables_on_fake_nccl.py",
        "tests/ranks/test_torchrun_deadlocks.py",
    ],
    "ranks": ["tests/ranks"],
    "launchers": ["tests/launchers", "tests/gpu"],
}


def part_of(path: str) -> str:
    """Return the part that a file belongs to.

    Raises
    ------
    ValueError
        If it belongs to none.
    """
    found = [
        (len(start), name)
        for name, starts in PARTS.items()
        for start in starts
        if path == start or path.startswith(f"{start}/")
    ]
    if not found:
        raise ValueError(f"{path} belongs to no part of the tests: name it in {__name__}")
    return max(found)[1]


def files() -> list[str]:
    """List all files with tests."""
    found = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("notebooks/*.ipynb")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def main(argv: list[str]) -> int:
    """List the files of the part that is named, one a line; nothing if none is."""
    if not argv:
        return 0
    if len(argv) > 1 or argv[0] not in PARTS:
        print(f"make: the parts of the tests are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    print(*(path for path in files() if part_of(path) == argv[0]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
