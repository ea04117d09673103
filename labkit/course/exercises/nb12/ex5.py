"""Exercise 12-5: write the torchrun command for a job on several nodes."""

from __future__ import annotations

import contextlib
import copy
import io
import os
from collections.abc import Callable
from typing import Any

from ...answers import body, whole
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When

PORT = 29400
#: Nodes, processes on each, the host where they meet, the script and its arguments.
JOBS: tuple[tuple[int, int, str, list[str]], ...] = (
    (2, 4, "node-a", ["train.py", "--epochs", "3"]),
    (3, 2, "10.0.0.1", ["test.py"]),
)
NO_LIST, NO_TEXT, NO_TORCHRUN = "no list", "not all text", "no torchrun"
REFUSED, OTHER, STANDALONE = "refused", "another one each time", "standalone"


def trial(answer: Callable[..., Any], here: Here) -> list[Any] | None:
    """Let torchrun's parser read each command, and say what it has understood."""
    found = [_read(answer, *job) for job in JOBS]
    return found if any(text is not None for text in found) else None


def _read(answer: Callable[..., Any], *job: Any) -> str | None:
    words, again = (answer(*copy.deepcopy(job)) for _ in range(2))
    if words is None:
        return None
    if not isinstance(words, (list, tuple)):
        return NO_LIST
    if not all(isinstance(word, (str, os.PathLike)) for word in words):
        return NO_TEXT
    if list(words) != list(again):
        return OTHER
    words = [os.fspath(word) for word in words]
    if os.path.basename(words[0]) == "torchrun":
        return _understood(words[1:])
    return _understood(words[3:]) if words[1:3] == ["-m", "torch.distributed.run"] else NO_TORCHRUN


def _understood(words: list[str]) -> str:
    """Say what torchrun makes of its arguments."""
    from torch.distributed.run import get_args_parser

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            read = get_args_parser().parse_args(words)
    except SystemExit:
        return f"{REFUSED}: {said.getvalue().strip().rpartition('error: ')[2]}"
    least, _, most = read.nnodes.partition(":")
    nodes = least if most in ("", least) else read.nnodes
    place = read.rdzv_endpoint
    if read.rdzv_backend == "c10d" and place and ":" not in place:
        place = f"{place}:{PORT}"  # torchrun's default
    where = STANDALONE if read.standalone else f"{read.rdzv_backend} at {place or 'no endpoint'}"
    script = " ".join([read.training_script, *read.training_script_args])
    return f"{nodes} x {read.nproc_per_node}, {where}: {script}"


def expected() -> list[str]:
    """Write the same from the numbers."""
    return [f"{n} x {k}, c10d at {host}:{PORT}: {' '.join(s)}" for n, k, host, s in JOBS]


def _says(*parts: str) -> When:
    """Return the predicate of a mistake: one of these stands in what is said of the first job."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return any(part in yours[0] for part in parts)

    return when


def _begins(*starts: str) -> When:
    return lambda yours, expected, n: str(yours[0]).startswith(starts)


EXERCISE = Exercise(
    id="12-5",
    title="Write the command",
    answer="torchrun_command",
    setup="""
        import socket
        import uuid
    """,
    trial=trial,
    expected=expected,
    where="notebook",
    seconds=60,
    mistakes=(
        Mistake(
            "The command is one long string. Return a list with one string per word.",
            when=_begins(NO_LIST),
            shown_by={
                "one text": body("""
                    return (
                        f"torchrun --nnodes={nodes} --nproc-per-node={per_node} "
                        f"--rdzv-backend=c10d --rdzv-endpoint={host}:29400 {' '.join(script)}"
                    )
                """),
            },
        ),
        Mistake(
            'Every word of a command is a string: str(nodes), or f"--nnodes={nodes}".',
            when=_begins(NO_TEXT),
            shown_by={
                "numbers": body("""
                    options = ["--nnodes", nodes, "--nproc-per-node", per_node]
                    options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:29400"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            'The first word is the program: "torchrun".',
            when=_begins(NO_TORCHRUN),
            shown_by={
                "no program": body("""
                    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["python", *options, *script]
                """),
            },
        ),
        Mistake(
            "The command differs from call to call, but all nodes need the same one: agents with "
            "different ids do not find each other.",
            when=_begins(OTHER),
            shown_by={
                "an id of its own": body("""
                    options = [
                        f"--nnodes={nodes}",
                        f"--nproc-per-node={per_node}",
                        f"--rdzv-id={uuid.uuid4()}",
                    ]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            "torchrun refuses this command. Its own options come first, then the script, and "
            "then the script's arguments.",
            when=_begins(REFUSED),
            shown_by={
                "the script's arguments first": body("""
                    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["torchrun", *options, *script[1:], script[0]]
                """),
            },
        ),
        Mistake(
            "torchrun passes everything after the script on to the script: put torchrun's own "
            "options before it.",
            when=_says(".py --n", ".py --r", "3 --n", "3 --r"),
            shown_by={
                "the script first": body("""
                    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["torchrun", *script, *options]
                """),
            },
        ),
        Mistake(
            "--standalone is for a single node. Several nodes need --rdzv-backend=c10d and "
            "--rdzv-endpoint.",
            when=_says(STANDALONE),
            shown_by={
                "standalone": body("""
                    options = ["--standalone", f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            "--nnodes is missing: torchrun assumes one node, and does not wait for others.",
            when=_begins("1 x "),
            shown_by={
                "one node": body("""
                    options = [f"--nproc-per-node={per_node}"]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            "--nproc-per-node counts the processes of one node, not of all together.",
            when=_begins("2 x 8"),
            shown_by={
                "all ranks on a node": body("""
                    options = [f"--nnodes={nodes}", f"--nproc-per-node={nodes * per_node}"]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            "--nproc-per-node is missing: torchrun then starts one process per node.",
            when=_begins("2 x 1"),
            shown_by={
                "one process on a node": body("""
                    options = [f"--nnodes={nodes}"]
                    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            "This is the static rendezvous, in which each node has to be given its number: add "
            "--rdzv-backend=c10d.",
            when=_says("static at"),
            shown_by={
                "static": body("""
                    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
                    options += [f"--master-addr={host}", "--master-port=29400", "--node-rank=0"]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
        Mistake(
            "All agents need the same endpoint: host:29400, on every node.",
            when=lambda yours, expected, n: "c10d" in yours[0] and "node-a:29400" not in yours[0],
            shown_by={
                "its own host": body("""
                    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
                    options += [
                        "--rdzv-backend=c10d",
                        f"--rdzv-endpoint={socket.gethostname()}:29400",
                    ]
                    return ["torchrun", *options, *script]
                """),
                "no endpoint": body("""
                    options = [
                        f"--nnodes={nodes}",
                        f"--nproc-per-node={per_node}",
                        "--rdzv-backend=c10d",
                    ]
                    return ["torchrun", *options, *script]
                """),
            },
        ),
    ),
    also_wrong={
        "prints": Wrong(
            body('print("torchrun --nnodes=2 --nproc-per-node=4 train.py")'), says="nothing"
        ),
    },
    another=whole("""
        import sys


        def torchrun_command(nodes, per_node, host, script):
            words = (
                f"--nnodes {nodes}:{nodes} --nproc_per_node {per_node} --rdzv_backend c10d".split()
            )
            words += ["--rdzv-id", "lab", "--rdzv_endpoint", host]
            return [sys.executable, "-m", "torch.distributed.run", *words, *script]
    """),
    hints=(
        "Four options: how many nodes, how many processes per node, how to meet, and where.",
        "--nnodes, --nproc-per-node, --rdzv-backend and --rdzv-endpoint; then *script.",
        'Each option is one word, such as f"--nnodes={nodes}". The endpoint is '
        'f"{host}:29400", and *script puts the script\'s words at the end.',
    ),
)
