"""Run everything that needs a GPU, within a few minutes: ``python -m tests.gpu.run --help``.

The most important comes first: deadlocks on NCCL, then the other tests marked gpu, then the
course. Whatever does not fit into the time is named.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from labkit.launch.placement import NCCL_SHARES_GPU
from tests.support.conda_versions import ROOT

from . import children, course, report, testing
from .budget import Budget
from .prepare import HOME, NCCL
from .result import NOT_RUN, Step, exit_code

FAULTS = "tests/gpu/test_gpu_deadlocks.py"
#: Seconds for each part, so that one that is slow does not take the others' time.
FAULT_SECONDS, TEST_SECONDS, FIGURE_SECONDS = 210.0, 130.0, 60.0
#: Variables of a job or a lab that this runs in; they are none of its business.
NOT_OURS = ("LABKIT_RANKS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
            "PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")  # fmt: skip
NO_GPU = (
    "torch {torch} can use no GPU here. Nothing was run; GPU=0 tries the same on the CPU, which "
    "shows whether this command works, not whether labkit works on a GPU."
)


def environment(scratch: str, *, gpu: bool) -> dict[str, str]:
    """Return the variables of everything that runs.

    An NCCL that came with the wheels takes the place of the one that torch brings from elsewhere.
    """
    kept = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    kept |= {"IPYTHONDIR": scratch, "PYTHONUNBUFFERED": "1"}
    if not gpu:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    elif (library := HOME / "nccl" / NCCL).exists() and Path(sys.prefix) == HOME / "venv":
        kept["LD_PRELOAD"] = " ".join([str(library), *kept.get("LD_PRELOAD", "").split()])
    return kept


def ask(
    module: str, *arguments: str, folder: Path, env: Mapping[str, str], seconds: float, stop: Any
) -> dict[str, Any]:
    """Run a module of this package whose last line is JSON; {"error": …} if it does not answer."""
    log = folder / f"{module}.log"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"tests.gpu.run.{module}", *arguments]
    ended = children.run(command, seconds=seconds, log=log, env=env, stop=stop)
    lines = log.read_text(errors="replace").strip().splitlines()
    if ended.by != "itself" or ended.code != 0 or not lines:
        last = lines[-1] if lines else f"exit code {ended.code}"
        return {"error": f"no answer in {seconds:.0f} s" if ended.by == "time" else last}
    return dict(json.loads(lines[-1]))


def too_many(ranks: int, machine: Mapping[str, Any], *, gpu: bool) -> str:
    """Say why NCCL cannot serve so many ranks on the GPUs of this machine; "" if it can."""
    if not gpu or ranks <= len(machine["gpus"]):
        return ""
    have = machine["nccl"]
    if have and tuple(map(int, have.split(".")[:2])) >= NCCL_SHARES_GPU:
        return ""
    needed = ".".join(map(str, NCCL_SHARES_GPU))
    return f"this NCCL ({have or 'none'}) serves one rank on each GPU; {needed} is needed"


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


def main(
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = HOME / "out",
    seconds: Annotated[float, typer.Option(min=30, help="For everything together.")] = 480,
    gpu: Annotated[bool, typer.Option(help="Without: the same on the CPU, to try it.")] = True,
    tests: Annotated[bool, typer.Option(help="Run the tests.")] = True,
    ranks: Annotated[list[int] | None, typer.Option(min=1, help="1 and 4; repeat it.")] = None,
    notebooks: Annotated[
        list[str] | None, typer.Option(help="How names begin, such as 03; repeat it.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Notebooks at a time (default: by cores, 1 to 4).")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with this run's executed notebooks.")
    ] = None,
    began: Annotated[float | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the tests marked gpu and the course on the GPUs of this machine.

    The exit code is 0 if everything ran and passed, 1 if something failed, 2 if nothing failed but
    not all of it ran.
    """
    budget = Budget(seconds, time.time() if began is None else began)
    command = shlex.join(["python", "-m", "tests.gpu.run", *sys.argv[1:]])
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="test-gpu-") as scratch, stopped_by_signals() as stop:
        env = environment(scratch, gpu=gpu)
        found = report.Report(command)
        machine = ask("machine", folder=out, env=env, seconds=120, stop=stop)
        if "error" in machine:
            console.print(f"test-gpu: this machine cannot be asked: {escape(machine['error'])}")
            raise typer.Exit(NOT_RUN)
        found.machine = machine
        for line in report.machine_lines(machine):
            console.print(escape(line), soft_wrap=True)
        if gpu and not machine["gpus"]:
            found.save(out / "report.json")
            console.print(
                "test-gpu: " + escape(NO_GPU.format(torch=machine["torch"])), soft_wrap=True
            )
            raise typer.Exit(NOT_RUN)

        def done(step: Step) -> None:
            found.steps.append(step)
            found.seconds = round(time.time() - budget.began, 1)
            found.save(out / "report.json")
            console.print(f"[dim]{escape(step.name)}: {step.state}, {step.seconds:.0f} s[/]")

        if tests:
            paths = testing.gpu_files(ROOT / "tests")
            others = [str(p.relative_to(ROOT)) for p in paths if p != ROOT / FAULTS]
            shared = {"budget": budget, "folder": out, "env": env, "options": ["-m", "gpu"]}
            for name, targets, most in (
                ("faults on NCCL", [FAULTS], FAULT_SECONDS),
                ("tests on GPUs", others, TEST_SECONDS),
            ):
                done(testing.run_tests(name, targets, seconds=most, stop=stop, **shared))
        asked = ranks or [1, 4]
        for number in asked:
            if budget.left() < course.LEAST or stop.is_set() or too_many(number, machine, gpu=gpu):
                continue
            limit = min(FIGURE_SECONDS, budget.left())
            facts = ask("start", str(number), folder=out, env=env, seconds=limit, stop=stop)
            found.figures.append({"ranks": number, **facts})
        parallel = jobs or max(1, min(4, machine["cores"] // 4))
        chosen = course.notebooks(notebooks or ())
        for number in asked:
            if why := too_many(number, machine, gpu=gpu):
                done(Step(f"course, {number} ranks", why=why))
                continue
            done(
                course.run_course(
                    number,
                    chosen,
                    budget=budget,
                    folder=out,
                    env=env,
                    jobs=parallel,
                    against=against and against.resolve(),
                    stop=stop,
                )
            )
    console.print(report.table(found))
    for line in [*report.figure_lines(found.figures), *report.notes(found.steps)]:
        console.print(escape(line), soft_wrap=True)
    console.print(
        f"{found.seconds:.0f} of {seconds:.0f} s; everything is in {escape(str(out))}",
        soft_wrap=True,
    )
    raise typer.Exit(exit_code(found.steps))


if __name__ == "__main__":
    typer.run(main)
