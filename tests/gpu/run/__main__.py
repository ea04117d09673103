"""Run everything that needs a GPU, within a few minutes: ``python -m tests.gpu.run --help``.

The pieces of ``plan`` run one after the other, the most valuable first. What there is no time for
is named, and a later command with ``--resume`` goes on with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.gpu.crash_stacks import FOLDER as CRASHES
from tests.support.conda_versions import ROOT

from . import children, course, pack, plan, report, testing
from .budget import Budget
from .plan import Piece
from .prepare import HOME, NCCL
from .result import NOT_RUN, STOPPED, TIME_OVER, Item, Step, exit_code

#: Variables of a job or a lab that this runs in; they are none of its business.
NOT_OURS = ("LABKIT_RANKS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
            "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")  # fmt: skip
#: Tells tests to try themselves on the fake NCCL (``tests/gpu/ranks.py``).
FAKE = "LABKIT_GPU_TESTS"
NO_GPU = (
    "torch {torch} can use no GPU here. Nothing was run; GPU=0 tries the same on the CPU, which "
    "shows whether this command works, not whether labkit works on a GPU."
)
#: Seconds for everything, where there is a GPU and where there is none.
GPU_SECONDS, CPU_SECONDS = 480.0, 3600.0
#: Seconds for the machine to say what it is; torch may come from a cold disk.
MACHINE_SECONDS = 120.0
#: Seconds that there must be left to begin with a piece.
LEAST = 20.0


def environment(scratch: str, *, gpu: bool) -> dict[str, str]:
    """Return the variables of everything that runs.

    An NCCL that came with the wheels takes the place of the one that torch brings from elsewhere.
    """
    kept = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    kept |= {"IPYTHONDIR": scratch, "PYTHONUNBUFFERED": "1"}
    if not gpu:
        kept |= {"CUDA_VISIBLE_DEVICES": "", FAKE: "fake"}
    if (library := HOME / "nccl" / NCCL).exists() and Path(sys.prefix) == HOME / "venv":
        kept["LD_PRELOAD"] = " ".join([str(library), *kept.get("LD_PRELOAD", "").split()])
    return kept


def ask(
    module: str, *arguments: str, folder: Path, env: Mapping[str, str], seconds: float, stop: Any
) -> dict[str, Any]:
    """Run a module of this package whose last line is JSON; {"error": …} if it does not answer."""
    log = folder / f"{'-'.join([module, *arguments])}.log"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"tests.gpu.run.{module}", *arguments]
    ended = children.run(command, seconds=seconds, log=log, env=env, stop=stop)
    lines = log.read_text(errors="replace").strip().splitlines()
    if ended.by == "itself" and ended.code == 0:
        for line in reversed(lines):  # a warning may come after it
            with contextlib.suppress(json.JSONDecodeError):
                if isinstance(found := json.loads(line), dict):
                    return found
    last = lines[-1] if lines else f"exit code {ended.code}"
    return {"error": f"no answer in {seconds:.0f} s" if ended.by == "time" else last}


def ask_machine(folder: Path, env: dict[str, str], stop: Any) -> dict[str, Any]:
    """Return what the machine is; one that does not say so with the NCCL that was brought is asked
    again without it."""
    found = ask("machine", folder=folder, env=env, seconds=MACHINE_SECONDS, stop=stop)
    if "error" in found and env.pop("LD_PRELOAD", ""):
        print(f"the NCCL that was brought cannot be loaded: {found['error']}", flush=True)
        return ask_machine(folder, env, stop)
    return found


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that is set by Ctrl-C and SIGTERM: what runs is ended, the report is made."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Runner:
    """What every piece is run with."""

    folder: Path
    env: Mapping[str, str]
    budget: Budget
    machine: Mapping[str, Any]
    gpu: bool
    scale: float
    jobs: int
    against: Path
    stop: threading.Event

    def run(self, piece: Piece, before: Step | None, steps: Sequence[Step]) -> Step:
        """Run a piece, or what ``before`` has left of it, after these steps."""
        if self.gpu and (why := piece.check_nccl(self.machine)):
            return Step(piece.key, why=why)
        if why := plan.check_probes(piece, steps):
            return Step(piece.key, why=why)
        if self.stop.is_set() or self.budget.left() < LEAST:
            step = Step(piece.key, why=STOPPED if self.stop.is_set() else TIME_OVER)
            return before or step
        left = [i.name for i in before.items if i.state == "not run"] if before else []
        step = {"tests": self._tests, "course": self._course, "program": self._program}[piece.kind](
            piece, left
        )
        kept = [item for item in before.items if item.state != "not run"] if before else []
        step.items = [*kept, *step.items]
        step.seconds += before.seconds if before else 0.0
        return step

    def _tests(self, piece: Piece, left: list[str]) -> Step:
        files = [str(p.relative_to(ROOT)) for p in testing.gpu_files(ROOT / "tests")]
        others = [file for file in files if file not in plan.OWN_PIECE]
        return testing.run_tests(
            piece.key,
            left or piece.what or others,
            budget=self.budget,
            folder=self.folder,
            env=self.env,
            options=["-m", "gpu"],
            seconds=piece.seconds * self.scale,
            silence=testing.SILENCE * self.scale,
            stop=self.stop,
        )

    def _course(self, piece: Piece, left: list[str]) -> Step:
        paths = course.notebooks(piece.what)
        # Ranks that share a GPU take turns on it: fewer labs at a time.
        jobs = max(1, self.jobs // 2) if len(self.machine["gpus"]) < piece.ranks else self.jobs
        return course.run_course(
            piece.key,
            piece.ranks,
            [path for path in paths if not left or path.stem in left],
            budget=self.budget,
            folder=self.folder,
            env=self.env,
            seconds=piece.seconds * self.scale,
            scale=self.scale,
            jobs=jobs if self.gpu else self.jobs,
            against=self.against,
            stop=self.stop,
        )

    def _program(self, piece: Piece, left: list[str]) -> Step:
        module, *arguments = piece.what
        limit = min(piece.seconds * self.scale, self.budget.left())
        began = time.monotonic()
        facts = ask(module, *arguments, folder=self.folder, env=self.env, seconds=limit,
                    stop=self.stop)  # fmt: skip
        why = facts.get("error", "")
        if why.startswith("no answer in") and limit < piece.seconds * self.scale:
            return Step(piece.key, [Item(piece.key, "not run", why=TIME_OVER)])
        item = Item(piece.key, "failed" if why else "passed", why=why, more={"facts": facts})
        return Step(piece.key, [item], time.monotonic() - began)


def main(
    out: Annotated[
        Path | None, typer.Option(help="Also pack everything into this folder, again and again.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=30, help="For everything: 480, without a GPU an hour.")
    ] = None,
    gpu: Annotated[bool, typer.Option(help="Without: the same on the CPU, to try it.")] = True,
    plan_name: Annotated[
        str | None, typer.Option("--plan", help="a or b; by default b where ranks can share a GPU.")
    ] = None,
    piece: Annotated[list[str] | None, typer.Option(help="Only this piece; repeat it.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with what the last run has left.")] = False,
    scale: Annotated[
        float | None, typer.Option(min=1, help="Multiplies the limits of pieces: 16 / cores.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Notebooks at a time (default: by cores, 1 to 4).")
    ] = None,
    against: Annotated[
        Path, typer.Option(help="Compare with this run's executed notebooks, if they are there.")
    ] = HOME / "reference",
    began: Annotated[float | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the tests marked gpu, figures and the course on the GPUs of this machine.

    Everything goes to build/gpu/out. The exit code is 0 if everything ran and passed, 1 if
    something failed, 2 if nothing failed but not all of it ran.
    """
    if plan_name not in (None, *plan.PLANS):
        raise typer.BadParameter(f"There is no plan {plan_name}; there are a and b.")
    total = seconds or (GPU_SECONDS if gpu else CPU_SECONDS)
    budget = Budget(total, time.time() if began is None else began)
    command = shlex.join(["python", "-m", "tests.gpu.run", *sys.argv[1:]])
    try:
        plan.chosen("a", piece or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--piece") from None
    folder = HOME / "out"
    before = report.load(folder / "report.json") if resume else {}
    if not before:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    done = [name for name, step in before.items() if step.is_over]
    with (
        tempfile.TemporaryDirectory(prefix="test-gpu-") as scratch,
        stopped_by_signals() as stop,
        pack.packed(folder, out and out.resolve()),
    ):
        env = environment(scratch, gpu=gpu) | {CRASHES: str(folder / "crashes")}
        (folder / "crashes").mkdir(exist_ok=True)
        found = report.Report(command, gpu=gpu)
        machine = ask_machine(folder, env, stop)
        if "error" in machine:
            print(f"test-gpu: this machine does not say what it is: {machine['error']}")
            raise typer.Exit(NOT_RUN)
        found.machine, found.total = machine, total
        print(*report.machine_lines(machine), sep="\n", flush=True)
        if gpu and not machine["gpus"]:
            found.save(folder)
            print("test-gpu: " + NO_GPU.format(torch=machine["torch"]))
            raise typer.Exit(NOT_RUN)
        found.plan = plan_name or plan.plan_for(machine)
        found.steps = [before[name] for name in done]
        runner = Runner(
            folder, env, budget, machine, gpu, scale or max(1.0, 16 / machine["cores"]),
            jobs or max(1, min(4, machine["cores"] // 4)), against.resolve(), stop,
        )  # fmt: skip
        while True:
            if plan.cannot_share(found.steps) and env.pop("LD_PRELOAD", ""):
                # The NCCL that was brought is of no use here: go on with torch's own.
                print("NCCL cannot share this GPU: plan a, with torch's own NCCL", flush=True)
                own = ask_machine(folder, env, stop)
                found.plan, found.machine = "a", machine | ({} if "error" in own else own)
                runner = replace(runner, machine=found.machine)
            left = plan.chosen(found.plan, piece or (), [step.name for step in found.steps])
            left.sort(key=lambda one: one.key in before)  # what has never begun comes first
            if not left:
                break
            try:
                step = runner.run(left[0], before.get(left[0].key), found.steps)
            except Exception as error:  # the next piece has a right to its minutes
                why = f"{type(error).__name__}: {error}"
                step = Step(left[0].key, [Item(left[0].key, "failed", why=why)])
            found.steps.append(step)
            found.seconds = round(time.time() - budget.began, 1)
            print(f"{found.seconds:4.0f} s  {step.name}: {step.state}", flush=True)
            found.save(folder)
    print("\n" + report.table(found))
    raise typer.Exit(exit_code(found.steps, gpu=gpu))


if __name__ == "__main__":
    typer.run(main)
