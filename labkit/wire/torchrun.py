"""Name what the kernel, torchrun and its workers leave for one another in a private folder."""

from __future__ import annotations

from dataclasses import dataclass

#: The cell's text as a script; the workers' files; how torchrun has ended.
SCRIPT, LOGS, REPORT = "cell.py", "logs", "report.json"
#: Beside the files of a worker: its rank, the error that it ended with, that its script has ended.
RANK, ERROR, DONE = "rank", "raised.json", "done"
#: The exit code of Python after an error.
FAILED = 1
#: The variable that tells torchrun the name of the cell.
CELL = "LABKIT_CELL"
#: Where torchrun tells a worker which file, beside those, is for its error.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: The socket at which torchrun asks for workers, where they are forked.
WORKERS = "workers"
#: The socket by which workers say what they wait for.
SOCKET = "watch"


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself first."""

    rank: int
    size: int  #: of the world
    attempt: int  #: how many times torchrun has started the workers again
    pid: int
