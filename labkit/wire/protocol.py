"""Names and files that notebook, launchers and ranks share.

Their messages are in ``requests``, ``samples`` and ``remote_calls``.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

#: Begins the name of the file that a controller leaves for each client that connects.
CLIENT = "client-"

# -- environment variables, by what they carry from the process that starts another ---------------

#: The launcher's own number for an engine: ranks of a host are in its order.
RANK_HINT = "LABKIT_RANK_HINT"
#: The number of the process that a controller follows,
OWNER_PID = "LABKIT_OWNER"
#: the folder that it removes when that one has ended,
LAB_FOLDER = "LABKIT_FOLDER"
#: and a command (JSON) to run then, such as the one that cancels a job.
LAST_COMMAND = "LABKIT_LAST_COMMAND"
#: A folder that is only for ranks of one lab on one host, below the home: the last of them
#: removes it.
REMOTE_FOLDER = "LABKIT_REMOTE_FOLDER"
#: A folder on the notebook's host for what shall outlive a rank.
RECORD_FOLDER = "LABKIT_RECORD_FOLDER"
#: The folder of the notebook, which a rank's host may have too,
WORK_FOLDER = "LABKIT_WORK_FOLDER"
#: and whether others can write there, as far as the notebook's host knows.
SHARED_WORK = "LABKIT_SHARED_WORK"

# -- what a rank displays for the notebook alone ---------------------------------------------------

#: The messages of a cell or a call: a ``samples.Sample`` as ``encoding`` writes it.
MESSAGES = "application/vnd.labkit.messages+json"

# -- what notebook and ranks add to ipyparallel's messages -----------------------------------------

#: In the metadata of a request: the rank need not tell that it is busy, nor what it was asked.
#: In the content of its reply: whether no output comes, so that it does not tell of the end either.
QUIET = "labkit_quiet"
#: In the content of the reply to such a request: the collectives of a cell or a call, a
#: ``samples.CellCalls`` as ``encoding`` writes it; missing: there were none.
COLLECTIVES = "labkit_collectives"
#: In the content of the reply to a cell: a ``state.CellTime``, as a list.
CELL_TIME = "labkit_cell_time"

#: What a rank tells the hub when it is there: it need not wait for two heartbeats.
READY = "labkit_ready"

# -- torch's collectives --------------------------------------------------------------------------

#: Collectives in which one rank gives to the others, or takes from them: one end can finish
#: though another rank has not come.
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")
ROOTED = FROM_ROOT + TO_ROOT

#: What a goal of an exercise can count, per rank, while the answer runs.
MEASURES = ("messages sent", "bytes sent", "collectives")


# -- where a rank stands --------------------------------------------------------------------------

# Nothing of such a rank's Python runs: not the thread of its control channel either. What the
# standard library's ``faulthandler`` writes needs no interpreter. A line of the rank's own between
# two stacks says that its Python has seen an interrupt. The last stack may be that of a crash.

#: Makes a rank write where it stands; None: this system has no such signal.
STACK_SIGNAL: int | None = signal.SIGRTMIN + 11 if hasattr(signal, "SIGRTMIN") else None
#: Written by the handler of SIGINT.
SEEN = "an interrupt was seen\n"
#: Begins what faulthandler writes of a crash.
CRASH = "Fatal Python error: "
#: The signals after which it writes; a process that the rank has forked writes there, too.
CRASHES = frozenset[int](
    {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
)

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True)
class Frame:
    """A line that a stack stands in."""

    filename: str
    line: int
    function: str


def stack_path(folder: Path | str, pid: int) -> str:
    """Name the file of a process."""
    return os.path.join(folder, f"{pid}.stack")


def read_crash(path: str) -> list[Frame]:
    """Read where a rank crashed, innermost frame first; nothing if it did not, or in a thread that
    is none of Python's."""
    _, begin, crash = _text(path).rpartition(CRASH)
    return _frames(crash) if begin else []


def read_stack(path: str) -> tuple[list[Frame], bool]:
    """Read what a rank has written since its last request began.

    Returns
    -------
    frames
        The last stack, innermost frame first; none if none was written.
    seen
        Whether its Python has seen an interrupt.
    """
    text = _text(path)
    return _frames(text[text.rfind("(most recent call first)") :]), SEEN in text


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _frames(text: str) -> list[Frame]:
    return [Frame(file, int(line), name) for file, line, name in _FRAME.findall(text)]


# -- the newest receives of a rank ----------------------------------------------------------------

# Gloo aborts a rank whose tensor is too small for the message that comes. What it was about to
# receive is gone with it, but for this.

#: Bytes of a receive in the file, and how many are kept.
SLOT, SLOTS = 512, 32


@dataclass(frozen=True)
class Receive:
    """A receive that was posted, or was about to be."""

    peer: int  #: rank in the world; -1: any
    tag: int
    number: int  #: from 1, among those of this peer and tag in its group
    elements: int
    type: str  #: "float32"
    where: str = ""  #: "In[7], line 3"
    line: str = ""  #: "dist.recv(x, 0)"


class ReceiveBook:
    """The file, as the rank writes it: no system call per receive."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(fd, SLOT * SLOTS)
            self._memory = mmap.mmap(fd, SLOT * SLOTS)
        finally:
            os.close(fd)
        self._count = 0

    def note(self, receive: Receive) -> None:
        """Write one down, in the place of the oldest."""
        text = json.dumps([self._count, *astuple(receive)]).encode()
        if len(text) < SLOT:
            begin = self._count % SLOTS * SLOT
            self._memory[begin : begin + SLOT] = text.ljust(SLOT)
            self._count += 1


def receives_path(folder: Path | str, pid: int) -> str:
    """Name the file of a process."""
    return os.path.join(folder, f"{pid}.receives")


def read_receives(path: str) -> list[Receive]:
    """Read what a rank has written down, newest first; nothing if there is no such file."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return []
    found = []
    for begin in range(0, len(content), SLOT):
        try:
            found.append(json.loads(content[begin : begin + SLOT]))
        except ValueError:  # nothing there yet, or cut off in the middle
            continue
    return [Receive(*values) for _, *values in sorted(found, reverse=True)]


# -- what the kernel, torchrun and its workers leave in a private folder --------------------------

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


# -- what a script that trains tells of itself, for a check ---------------------------------------

#: The variable that asks for it: an :class:`Asked`, as JSON.
TRAINING = "LABKIT_TRAINING"


@dataclass(frozen=True)
class Asked:
    """Ask the processes of a script what they train on.

    Process 3 writes what it does into ``3.jsonl`` of the folder, one line for each thing:
    ``{"step": [7, 9]}`` is a step of an optimizer on two rows, each with a number that only equal
    rows share; ``{"saved": "a.pt"}`` is a call of ``torch.save``; ``{"held": 17}`` says that the
    process waits to be killed before its 17th step, which it does in its first life only: torchrun
    may start it again. At its end it writes its weights as one vector
    into ``3.pt``.
    """

    folder: str
    hold_rank: int = -1  #: the process that waits; -1: none does
    hold_step: int = 0  #: the step before which it waits, counted from 1

    def encoded(self) -> str:
        """Return the value of the variable."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> Asked:
        """Read the value of the variable."""
        return cls(**json.loads(text))
