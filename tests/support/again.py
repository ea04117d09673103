"""Run the files whose tests have failed once more, alone: ``python -m tests.support.again``.

``make test`` runs two files at a time, and some tests look at clocks: on a busy machine one in
some thousands fails for no other reason. What fails alone too, fails. What does not is named, so
that somebody who sees a name twice can look into it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache/v/cache/lastfailed")
#: More files than this do not fail by chance.
MOST = 3


def failed(cache: Path = CACHE) -> list[str]:
    """List the tests that the last run of pytest has noted as failed, none if it noted nothing."""
    return list(json.loads(cache.read_text())) if cache.exists() else []


def main() -> int:
    """Run them; return pytest's exit status, 1 if there is nothing to run or too much."""
    names = failed()
    files = list(dict.fromkeys(name.split("::")[0] for name in names))
    if not 0 < len(files) <= MOST:
        return 1
    print(f"\nOnce more, with nothing beside them: {', '.join(files)}\n", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.warm_start", *files]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        print("\nFailed beside other tests, passed alone:", *names, sep="\n  ")
    return status


if __name__ == "__main__":
    sys.exit(main())
