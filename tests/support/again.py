"""Run the tests that have failed once more, alone: ``python -m tests.support.again``.

``make test`` runs three files at a time, and some tests look at clocks: on a busy machine one in
some thousands fails for no other reason. What fails alone too, fails. What does not is named, so
that somebody who sees a name twice can look into it.

A notebook runs once more from its first cell. Of a file of tests those that failed do: the
slowest file takes a third of all the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache/v/cache/lastfailed")
#: Tests of more files than this do not fail by chance: in six runs of 8,900 tests each on two busy
#: cores it were those of 3 to 7; on a machine of half the speed those of 13, five of which found a
#: process that one had left.
MOST = 12


def failed(cache: Path = CACHE) -> list[str]:
    """List the tests that the last run of pytest has noted as failed, none if it noted nothing."""
    return list(json.loads(cache.read_text())) if cache.exists() else []


def file_of(name: str) -> str:
    """Return the file that a test is in."""
    return name.partition("::")[0]


def main() -> int:
    """Run them; return pytest's exit status, 1 if there is nothing to run or too much."""
    names = failed()
    if not 0 < len(set(map(file_of, names))) <= MOST:
        return 1
    cells = [name for name in names if file_of(name).endswith(".ipynb")]
    alone = dict.fromkeys(file_of(name) if name in cells else name for name in names)
    print("\nOnce more, with nothing beside them:", *alone, sep="\n  ", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.warm_start", *alone]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        print("\nFailed beside other tests, passed alone:", *names, sep="\n  ")
    return status


if __name__ == "__main__":
    sys.exit(main())
