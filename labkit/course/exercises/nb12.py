"""The exercises of notebook 12: which rank am I, who downloads, how to restart, how to launch.

A kill is played by an exception that is none of an answer's own: nothing of torch is replaced,
and no process ends.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ..exercise import Exercise, Here, Mistake
from ..mistakes import When, failed, would_give

#: What came of a trial, by name.
Facts = dict[str, Any]


def _raises(error: BaseException) -> str:
    return f"raises {type(error).__name__}"


def _fact(name: str, test: Callable[[Any], bool]) -> When:
    """Return the predicate of a mistake that shows in one fact."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return isinstance(yours, dict) and test(yours[name])

    return when


# -- 12-1: number the ranks -------------------------------------------------------------------

#: Processes on each node. With equal nodes more than one formula is right.
SIZES = ((3, 4), (2, 2), (4, 1, 2))
Rank = Callable[[int, int, Sequence[int]], Any]


def _numbered(rank_of: Rank) -> dict[str, list[Any]]:
    return {
        " + ".join(map(str, sizes)): [
            rank_of(node, local, list(sizes)) for node, k in enumerate(sizes) for local in range(k)
        ]
        for sizes in SIZES
    }


def trial_number(answer: Rank, here: Here) -> dict[str, list[Any]] | None:
    """Ask for the rank of every process, node by node."""
    numbered = _numbered(answer)
    nothing = all(rank is None for ranks in numbered.values() for rank in ranks)
    return None if nothing else numbered


def expected_number() -> dict[str, list[int]]:
    """Count through."""
    return {" + ".join(map(str, sizes)): list(range(sum(sizes))) for sizes in SIZES}


def _numbers(rank_of: Rank) -> When:
    return would_give(lambda n: _numbered(rank_of))


NUMBER = Exercise(
    id="12-1",
    title="Number the ranks",
    answer="rank_of",
    trial=trial_number,
    expected=expected_number,
    where="notebook",
    mistakes=(
        Mistake(
            "That is the local rank, which begins at 0 again on every node.",
            when=_numbers(lambda node, local, sizes: local),
        ),
        Mistake(
            "node_rank times the size of the node itself: right only where all nodes are equal. "
            "Before this node are the others: add up their sizes.",
            when=_numbers(lambda node, local, sizes: node * sizes[node] + local),
        ),
        Mistake(
            "node_rank times the size of the first node: right only as long as the nodes before "
            "this one are like it. Add up their sizes.",
            when=_numbers(lambda node, local, sizes: node * sizes[0] + local),
        ),
        Mistake(
            "len(sizes) is the number of nodes, not of processes on one.",
            when=_numbers(lambda node, local, sizes: node * len(sizes) + local),
        ),
        Mistake(
            "You count only the node just before this one. Add up the sizes of all nodes before.",
            when=_numbers(lambda node, local, sizes: (sizes[node - 1] if node else 0) + local),
        ),
        Mistake(
            "You count the node itself among those before it: sizes[:node_rank] stops in time.",
            when=_numbers(lambda node, local, sizes: sum(sizes[: node + 1]) + local),
        ),
        Mistake(
            "All ranks are one too high: they count from 0.",
            when=_numbers(lambda node, local, sizes: sum(sizes[:node]) + local + 1),
        ),
    ),
    hints=(
        "How many processes are on the nodes before this one?",
        "sizes[:node_rank] are the sizes of the nodes before.",
        "return sum(sizes[:node_rank]) + local_rank.",
    ),
)

# -- 12-2: ask the launcher -------------------------------------------------------------------

TORCHRUN, SRUN, BOTH, ALONE = "torchrun", "srun", "srun torchrun", "alone"
#: What a launcher leaves in the environment. In BOTH, Slurm's task 1 is the agent that came
#: first: with c10d the agents are numbered as they come.
ENVIRONMENTS = {
    TORCHRUN: {
        "HOME": "/",
        "RANK": "5",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "7",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
    },
    SRUN: {"HOME": "/", "SLURM_PROCID": "6", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"},
    BOTH: {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "9",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "2",
    },
    ALONE: {"HOME": "/"},
}


def trial_who(answer: Callable[[dict[str, str]], Any], here: Here) -> Facts | None:
    """Ask in each environment."""

    def attempt(environment: dict[str, str]) -> Any:
        try:
            found = answer(dict(environment))
        except (LookupError, TypeError, ValueError) as error:
            return _raises(error)
        return list(found) if isinstance(found, (tuple, list)) else found

    facts = {name: attempt(environment) for name, environment in ENVIRONMENTS.items()}
    return facts if any(found is not None for found in facts.values()) else None


def expected_who() -> dict[str, list[int]]:
    """Return what is known from how the environments were made."""
    return {TORCHRUN: [5, 2, 7], SRUN: [6, 1, 8], BOTH: [0, 0, 9], ALONE: [0, 0, 1]}


def _is(name: str, *values: Any) -> When:
    return _fact(name, lambda found: found in values)


ERRORS = ("raises KeyError", "raises TypeError")

WHO = Exercise(
    id="12-2",
    title="Ask the launcher",
    answer="who_am_i",
    trial=trial_who,
    expected=expected_who,
    where="notebook",
    mistakes=(
        Mistake(
            "The answer is the same everywhere: look into environment, which is another one in "
            "each case, not into os.environ.",
            when=lambda yours, expected, n: (
                isinstance(yours, dict) and all(v == yours[ALONE] for v in yours.values())
            ),
        ),
        Mistake(
            "Under torchrun a name is missing: Slurm's variables are there in a job of Slurm only.",
            when=_is(TORCHRUN, *ERRORS),
        ),
        Mistake(
            "An environment holds text. int() makes a number of it.",
            when=_fact(
                TORCHRUN,
                lambda found: isinstance(found, list) and any(isinstance(v, str) for v in found),
            ),
        ),
        Mistake(
            "LOCAL_RANK is the number on this node, and there is a 2 on other nodes too. The rank "
            "is in RANK.",
            when=_is(TORCHRUN, [2, 2, 7]),
        ),
        Mistake(
            "LOCAL_WORLD_SIZE counts the processes of this node; WORLD_SIZE counts all.",
            when=_is(TORCHRUN, [5, 2, 4]),
        ),
        Mistake(
            "The order is rank, local_rank, world_size.",
            when=_is(TORCHRUN, [2, 5, 7]),
        ),
        Mistake(
            "srun alone sets no RANK. Ask whether it is there, and then for Slurm's.",
            when=_is(SRUN, *ERRORS, [0, 0, 1]),
        ),
        Mistake(
            "Where srun has started torchrun, Slurm numbers the agents. The ranks are torchrun's: "
            "ask for them first.",
            when=_is(BOTH, [1, 0, 2]),
        ),
        Mistake(
            "Rank 0 is a rank: as an integer it counts as false, and `or` takes the next one. Ask "
            "whether the name is there.",
            when=_is(BOTH, [1, 0, 9]),
        ),
        Mistake(
            "Without a launcher none of the names is there: return (0, 0, 1).",
            when=_is(ALONE, *ERRORS, None),
        ),
    ),
    hints=(
        'Three cases, and "RANK" in environment tells the first of them.',
        "torchrun comes first: it may have been started by srun, which sets its variables too.",
        'if "RANK" in environment: names = three names; elif "SLURM_PROCID" in environment: the '
        "three others; else: return 0, 0, 1. Then int(environment[name]) for each.",
    ),
)

# -- 12-3: download once a node ---------------------------------------------------------------

#: The file comes in two pieces, each after so many seconds.
PIECES = {"ten ": 0.3, "images": 0.9}
FETCHED, READ = "fetched on this node", "read"
MISSING = "FileNotFoundError"


def _place(rank: int, n: int) -> tuple[int, int]:
    """Return node and local rank of a rank on two nodes, 2 + 2 or 1 + 2; two share one node."""
    first = n // 2 if n > 2 else n
    return (0, rank) if rank < first else (1, rank - first)


def trial_once(answer: Callable[..., Any], here: Here) -> Facts:
    """Download on two nodes; say how often each fetched, and what this rank read."""
    rank = here.rank
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    node, local = _place(rank, here.world_size)
    disk = Path(str(box[0]), f"node-{node}")
    calls = Path(str(box[0]), f"calls-{node}")
    try:
        disk.mkdir(exist_ok=True)
        calls.mkdir(exist_ok=True)

        def fetch(path: str) -> None:
            tempfile.mkstemp(dir=calls)
            for mode, (piece, seconds) in zip("wa", PIECES.items(), strict=True):
                time.sleep(seconds)
                with open(path, mode) as file:
                    file.write(piece)

        dist.barrier()
        try:
            read = answer(str(disk / "images.txt"), fetch, local)
        except OSError as error:
            read = type(error).__name__
        dist.barrier()
        fetched = len(list(calls.iterdir()))
        dist.barrier()
    finally:
        if rank == 0:
            shutil.rmtree(str(box[0]), ignore_errors=True)
    return {FETCHED: fetched, READ: read.decode() if isinstance(read, bytes) else read}


def expected_once(n: int) -> list[Facts]:
    """Fetch once on each node, and read all of it everywhere."""
    return [{FETCHED: 1, READ: "".join(PIECES)}] * n


def _early(yours: Sequence[Any], expected: Any, n: int) -> bool:
    return any(y[READ] in (MISSING, "", *PIECES) for y in yours)


ONCE = Exercise(
    id="12-3",
    title="Download once a node",
    answer="download_once",
    trial=trial_once,
    expected=expected_once,
    mistakes=(
        Mistake(
            "Some processes wait for others that do not come: a barrier is a meeting of all. It "
            "stands outside of the if.",
            when=lambda yours, expected, n: failed(yours, "Deadlock", "TimedOut"),
        ),
        Mistake(
            "Nobody calls fetch(path).",
            when=lambda yours, expected, n: all(y[FETCHED] == 0 for y in yours),
        ),
        Mistake(
            "One process fetches for all nodes, and the other node has no file: rank 0 is there "
            "once, local rank 0 on every node.",
            when=lambda yours, expected, n: {y[FETCHED] for y in yours} == {0, 1},
        ),
        Mistake(
            "Several processes of a node fetch at once, and write into the same file. One of them "
            "is enough: local rank 0. (To ask first whether the file is there does not help: at "
            "the start all of them see none.)",
            when=lambda yours, expected, n: any(y[FETCHED] > 1 for y in yours),
        ),
        Mistake(
            "Some read the file before it is complete. A barrier between fetching and reading "
            "makes them wait.",
            when=_early,
        ),
        Mistake(
            "The file is there, but its text is not returned.",
            when=lambda yours, expected, n: any(y[READ] is None for y in yours),
        ),
    ),
    hints=(
        "Three steps: one process of the node fetches, all wait, all read.",
        "local_rank == 0 is true for one process of each node. The barrier is for all.",
        "if local_rank == 0: fetch(path). Then dist.barrier(). Then with open(path) as file: "
        "return file.read().",
    ),
)

# -- 12-4: survive a restart ------------------------------------------------------------------

#: The steps, and the one that is killed.
STEPS, KILLED = 4, 2
IN_STEP, IN_SAVE, AGAIN, STATES = "in a step", "in a save", "when done", "states"
IN_PLACE = "in place"


class _Killed(BaseException):
    """End a script from outside. No Exception, so that an answer rarely catches it."""


class _Bomb:
    """Kill the script in the middle of a save: when it is pickled."""

    def __reduce__(self) -> Any:
        raise _Killed


class _Job:
    """A script's steps, noted as they begin. Its state is the list of the steps that it has done.

    Parameters
    ----------
    path
        Where the answer saves.
    fault
        IN_STEP or IN_SAVE: where the script is killed, once; anything else: nowhere.
    """

    def __init__(self, path: str, fault: str) -> None:
        self.path, self.fault = path, fault
        self.begun: list[int] = []
        self.in_place = False
        self._content = b""

    def step(self, i: int, state: Any) -> Any:
        self.begun.append(i)
        self._look()
        done = [*(state or []), i]
        if i == KILLED and self.fault in (IN_STEP, IN_SAVE):
            fault, self.fault = self.fault, ""
            if fault == IN_STEP:
                raise _Killed
            return [*done, _Bomb()]
        return done

    def _look(self) -> None:
        """Keep the file under a second name, and see what became of it since the last step: a new
        file in its place leaves it as it was."""
        kept = Path(f"{self.path}.kept")
        if kept.exists():
            self.in_place = self.in_place or kept.read_bytes() != self._content
            kept.unlink()
        if os.path.isfile(self.path):
            os.link(self.path, kept)
            self._content = kept.read_bytes()


def _run(answer: Callable[..., Any], job: _Job) -> Any:
    """Run the script; where it is killed, once more, as a launcher does. Return the last state."""
    for _ in range(2):
        try:
            return answer(job.path, STEPS, job.step)
        except _Killed:
            continue
        except Exception as error:
            return _raises(error)
    return "killed"


def trial_resume(answer: Callable[..., Any], here: Here) -> Facts:
    """Kill the script in a step, in a save and not at all, and run it again."""
    facts: Facts = {}
    states, in_place = [], False
    with tempfile.TemporaryDirectory() as home:
        for fault in (IN_STEP, IN_SAVE, AGAIN):
            path = os.path.join(home, fault.replace(" ", "-") + ".pt")
            job = _Job(path, fault)
            state = _run(answer, job)
            in_place = in_place or job.in_place
            if fault == AGAIN:
                job = _Job(path, fault)
                state = _run(answer, job)
            facts[fault] = state if isinstance(state, str) else job.begun
            states.append(state)
    facts[STATES] = states
    facts[IN_PLACE] = in_place
    return facts


def _begun(*steps: int) -> list[int]:
    return [*range(KILLED + 1), *steps]


def expected_resume() -> Facts:
    """Begin no step twice but the one that was killed, and none when all are done."""
    steps = _begun(*range(KILLED, STEPS))
    return {
        IN_STEP: steps,
        IN_SAVE: steps,
        AGAIN: [],
        STATES: [list(range(STEPS))] * 3,
        IN_PLACE: False,
    }


FROM_0 = _begun(*range(STEPS))

RESUME = Exercise(
    id="12-4",
    title="Survive a restart",
    answer="resume",
    trial=trial_resume,
    expected=expected_resume,
    where="notebook",
    mistakes=(
        Mistake(
            "It does not take the steps: for i in range(…): state = step(i, state).",
            when=_is(IN_STEP, []),
        ),
        Mistake(
            "At the first start there is no file yet: ask os.path.exists(path).",
            when=_is(IN_STEP, f"raises {MISSING}"),
        ),
        Mistake(
            "The second run begins at step 0. Load the file if there is one, and save after each "
            "step: what is saved at the end only, or never, is lost.",
            when=_is(IN_STEP, FROM_0),
        ),
        Mistake(
            "The killed step is left out: the file said that it was done. Save after the step, "
            "and let next be the number of the step to come.",
            when=_is(IN_STEP, _begun(*range(KILLED + 1, STEPS))),
        ),
        Mistake(
            "A step is done twice. After step i the step to come is i + 1: save that as next.",
            when=_is(IN_STEP, _begun(*range(KILLED - 1, STEPS))),
        ),
        Mistake(
            "It goes on with the right step, but with the state of a first start: load both.",
            when=lambda yours, expected, n: (
                yours[IN_STEP] == expected[IN_STEP] and yours[STATES][0] == [KILLED, STEPS - 1]
            ),
        ),
        Mistake(
            "The kill came in the middle of a save, and took the only good file with it. Save "
            "into a new file, and then os.replace(new, path).",
            when=lambda yours, expected, n: (
                yours[IN_SAVE] == FROM_0
                or str(yours[IN_SAVE]).startswith("raises")
                or yours[IN_PLACE]
            ),
        ),
        Mistake(
            "A start after the last step takes it once more: save after each step, the last one "
            "too.",
            when=_is(AGAIN, [STEPS - 1]),
        ),
        Mistake(
            "The last state is not returned.",
            when=_is(STATES, [None] * 3),
        ),
    ),
    hints=(
        "A dictionary with next and state is all that a start needs: the file's, or that of a "
        "first start.",
        "for i in range(now['next'], steps): now = {'next': i + 1, 'state': step(i, "
        "now['state'])}, and then save now.",
        'torch.save(now, f"{path}.new"); os.replace(f"{path}.new", path). At the start: if '
        "os.path.exists(path): now = torch.load(path).",
    ),
)

# -- 12-5: write the command ------------------------------------------------------------------

PORT = 29400
#: Nodes, processes on each, the host where they meet, the script and its arguments.
JOBS: tuple[tuple[int, int, str, list[str]], ...] = (
    (2, 4, "node-a", ["train.py", "--epochs", "3"]),
    (3, 2, "10.0.0.1", ["test.py"]),
)
NO_LIST, NO_TEXT, NO_TORCHRUN = "no list", "not all text", "no torchrun"
REFUSED, OTHER, STANDALONE = "refused", "another one each time", "standalone"


def trial_command(answer: Callable[..., Any], here: Here) -> list[Any] | None:
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


def expected_command() -> list[str]:
    """Write the same from the numbers."""
    return [f"{n} x {k}, c10d at {host}:{PORT}: {' '.join(s)}" for n, k, host, s in JOBS]


def _says(*parts: str) -> When:
    """Return the predicate of a mistake: one of these stands in what is said of the first job."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return any(part in yours[0] for part in parts)

    return when


def _begins(*starts: str) -> When:
    return lambda yours, expected, n: str(yours[0]).startswith(starts)


COMMAND = Exercise(
    id="12-5",
    title="Write the command",
    answer="torchrun_command",
    trial=trial_command,
    expected=expected_command,
    where="notebook",
    seconds=60,
    mistakes=(
        Mistake(
            "A command is a list with one text for each word, not one long text.",
            when=_begins(NO_LIST),
        ),
        Mistake(
            'Every word of a command is text: str(nodes), or f"--nnodes={nodes}".',
            when=_begins(NO_TEXT),
        ),
        Mistake(
            'The first word is the program: "torchrun".',
            when=_begins(NO_TORCHRUN),
        ),
        Mistake(
            "The command differs from call to call. All nodes need the same: an id that each makes "
            "up for itself keeps them apart.",
            when=_begins(OTHER),
        ),
        Mistake(
            "torchrun refuses this line. Its own options come first, then the script, and then "
            "the script's arguments.",
            when=_begins(REFUSED),
        ),
        Mistake(
            "What comes after the script is the script's, and torchrun does not read it: its own "
            "options come first.",
            when=_says(".py --n", ".py --r", "3 --n", "3 --r"),
        ),
        Mistake(
            "--standalone is for one node: it meets nobody else. Several nodes need "
            "--rdzv-backend=c10d and --rdzv-endpoint.",
            when=_says(STANDALONE),
        ),
        Mistake(
            "--nnodes is missing: torchrun takes it for one node, and waits for no other.",
            when=_begins("1 x "),
        ),
        Mistake(
            "--nproc-per-node counts the processes of one node, not of all together.",
            when=_begins("2 x 8"),
        ),
        Mistake(
            "Without --nproc-per-node there is one process on a node.",
            when=_begins("2 x 1"),
        ),
        Mistake(
            "That is the static way to meet, in which each node must be told its number: say "
            "--rdzv-backend=c10d.",
            when=_says("static at"),
        ),
        Mistake(
            "All agents meet at one place: the endpoint is host:29400 on every node.",
            when=lambda yours, expected, n: "c10d" in yours[0] and "node-a:29400" not in yours[0],
        ),
    ),
    hints=(
        "Four options: how many nodes, how many processes on one, how to meet, and where.",
        "--nnodes, --nproc-per-node, --rdzv-backend and --rdzv-endpoint; then *script.",
        'return ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={per_node}", '
        '"--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400", *script].',
    ),
)

EXERCISES = (NUMBER, WHO, ONCE, RESUME, COMMAND)
