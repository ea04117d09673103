"""The command line, also as ``python -m labkit``.

It has the commands lab, run, test, grade, class, nbgrader, mcp, doctor and new.
Every command imports what it needs when it runs: ``labkit --help`` answers at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from . import __version__
from .base.errors import LabError
from .wire.texts import sanitize_streams

app = typer.Typer(
    help="A notebook lab for distributed PyTorch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

#: Exit codes besides 0 and 1, as every shell has them.
USAGE, INTERRUPTED = 2, 130


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Turn a LabError into its sentence on stderr and exit code 2."""
    try:
        yield
    except LabError as error:
        typer.echo(f"labkit: {error}", err=True)
        raise typer.Exit(USAGE) from None


@contextmanager
def _interrupted() -> Iterator[None]:
    """Clean up at Ctrl-C and at SIGTERM alike, and end with exit code 130."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("labkit: interrupted.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_packages(command: str, *packages: str) -> None:
    """End with one sentence if a package is too old, or one that the command needs is missing (of
    all that the course has, if none is named), before anything imports it."""
    from .base import versions

    with _one_sentence():
        versions.need("course", f"labkit {command}", *packages)
        versions.check([*versions.required(), *versions.required("course")])


class _PassesOn(TyperCommand):
    """A command that hands what stands after ``--`` on, as ``context.obj``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, extra = list(args), []
        if "--" in own:
            at = own.index("--")
            own, extra = own[:at], own[at + 1 :]
        ctx.obj = extra
        return super().parse_args(ctx, own)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labkit {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Learn distributed PyTorch in notebooks whose cells run on real ranks."""
    sanitize_streams()


@app.command(cls=_PassesOn)
def lab(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Your copy of the course.")] = Path("work"),
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Make or update your copy of the course and open it in JupyterLab.

    What stands after -- goes to JupyterLab as it is.
    """
    _check_packages("lab")
    from .course import delivery
    from .launch import zygote_client
    from .tools import environment, jupyterlab

    if warning := jupyterlab.warn_of_root():
        typer.echo(f"labkit: {warning}", err=True)
    with _one_sentence():
        delivered = delivery.new_course(directory)
        typer.echo(delivered)
    jupyterlab.trust_notebooks(directory.expanduser(), delivered.new + delivered.updated)
    if warning := jupyterlab.warn_of_others(directory):
        typer.echo(f"labkit: {warning}", err=True)
    # It belongs to what this process becomes. It serves only those that have its variables.
    _ = zygote_client.Zygote.start(jupyterlab.server_environment(), survive_exec=True)
    typer.echo(jupyterlab.welcome(directory, browser=browser))
    argv = jupyterlab.command(directory, port=port, browser=browser, extra=context.obj)
    environment.become(argv, jupyterlab.server_environment())


@app.command()
def run(
    notebook: Annotated[Path, typer.Argument(help="The notebook to run.")],
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Ranks, instead of the number in the notebook.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write the executed copy (default: NAME.executed.ipynb)."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds that one cell may take (default: no limit)."),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", "-k", help="Run the cells behind one that fails, too.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print what cells print.")] = (
        False
    ),
) -> None:
    """Run a notebook here in the terminal and write an executed copy of it."""
    _check_packages("run", "nbclient", "nbformat")
    from .launch import zygote_client
    from .tools import environment, run_notebook, run_progress

    target = output or notebook.with_name(f"{notebook.stem}.executed.ipynb")
    with _one_sentence():
        nb = run_notebook.read(notebook)
        run_notebook.check_output(target)
        cells = len(run_notebook.cells_to_run(nb))
        failures: list[run_notebook.Failure] = []
        with (
            run_progress.RunView(notebook.name, cells, verbose=verbose) as view,
            zygote_client.running(environment.kernel_environment()),
        ):
            ended = run_notebook.execute(
                nb,
                notebook.resolve().parent,
                ranks=ranks,
                timeout=timeout,
                watcher=view,
                failed=failures.append if keep_going else None,
            )
        if ended is not None:
            failures.append(ended)
        for failure in failures:
            run_progress.show_failure(failure, cells)
        run_notebook.store(nb, target)
    typer.echo(f"Executed copy: {target}")
    if failures:
        raise typer.Exit(INTERRUPTED if failures[-1].interrupted else 1)


@app.command("test")
def validate_notebooks(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks or folders (default: the course's notebooks)."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one cell may take.")] = 180,
) -> None:
    """Run notebooks and compare their output with the stored one; exit as pytest does."""
    _check_packages("test", "nbval", "pytest")
    from .tools import environment, validate

    with _one_sentence():
        notebooks = validate.find(paths or [])
    environment.become(validate.command(notebooks, timeout=timeout))


@app.command("class")
def show_class(
    folder: Annotated[Path, typer.Argument(help="A folder with one folder per learner.")],
    html: Annotated[
        Path | None, typer.Option(help="Write a page to this file instead, with a figure.")
    ] = None,
    anonymous: Annotated[bool, typer.Option(help="Show numbers in place of names.")] = False,
) -> None:
    """Show a class: who is where, what takes most tries, which mistakes are named most."""
    from .teaching.classroom import Classroom

    with _one_sentence():
        found = Classroom(folder, anonymous=anonymous)
        if html is not None:
            found.save(html)
    typer.echo(repr(found) if html is None else f"Page: {html}")


@app.command()
def nbgrader(
    notebook: Annotated[
        str, typer.Argument(help="A solved notebook, or the number of one of the course's.")
    ],
    output: Annotated[Path, typer.Option(help="Where to write the copy: a file or a folder.")],
) -> None:
    """Write a copy of a solved notebook from which nbgrader makes an assignment."""
    _check_packages("nbgrader", "nbformat")
    from .teaching import nbgrader_export

    with _one_sentence():
        typer.echo(nbgrader_export.write(notebook, output))


@app.command()
def grade(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Notebooks, a copy of the course, or a folder of learners' homes."),
    ],
    only: Annotated[
        str, typer.Option(help="Numbers of notebooks, as in 00,01 (default: all that are there).")
    ] = "",
    timeout: Annotated[
        float,
        typer.Option(min=1, help="Seconds that one cell may take; a notebook 5 times as long."),
    ] = 60,
    memory: Annotated[float, typer.Option(min=0.5, help="GiB that one notebook may take.")] = 4,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Notebooks at the same time (default: by the cores)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML to this file.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say of each open exercise why.")
    ] = False,
) -> None:
    """Run copies of learners' notebooks in sandboxes and say which exercises are solved.

    Exits with 0 if all are, with 1 if one is open.
    """
    _check_packages("grade")
    from .base.errors import UsageError
    from .base.files import write_whole
    from .teaching import grade, grade_report, homes, sandbox
    from .teaching.judge_answers import Judge
    from .tools import run_notebook
    from .tools.grade_progress import GradeView

    with _one_sentence(), _interrupted():
        if as_json and as_csv:
            raise UsageError("--json and --csv exclude each other.")
        found = homes.find(paths, filter(None, only.split(",")))
        if junit is not None:
            run_notebook.check_output(junit, "--junit")
        limits = sandbox.Limits(timeout, int(memory * (1 << 30)))
        notebooks = len(found) * len({name for home in found for name in home.notebooks})
        with sandbox.choose() as sandboxes, GradeView(notebooks) as view:
            view.console.print(str(sandboxes.walls), soft_wrap=True)
            grader = grade.Grader(sandboxes, Judge(), limits)
            jobs = jobs or grade.default_jobs()
            grades = grader.grade(found, jobs, view.begins, view.ended)
        if junit is not None:
            write_whole(junit, grade_report.as_junit(grades))
    if as_json:
        typer.echo(grade_report.as_json(grades, sandboxes.walls))
    elif as_csv:
        typer.echo(grade_report.as_csv(grades), nl=False)
    else:
        for line in grade_report.lines(grades):
            typer.echo(line)
        for line in grade_report.reasons(grades) if verbose else ():
            typer.echo(line)
    if any(not mark.passed for each in grades for mark in each.marks.values()):
        raise typer.Exit(1)


@app.command()
def mcp() -> None:
    """Serve a private lab to an agent, which speaks MCP through stdin and stdout."""
    _check_packages("mcp")
    from .tools import mcp_server

    with _one_sentence():
        mcp_server.serve()


@app.command()
def doctor() -> None:
    """Report what this machine can do; exit with 1 if something needed is broken."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .base import versions
    from .tools.doctor.examine import examine

    console = Console(highlight=False)
    with console.status("looking at this machine") as status:
        findings = examine(lambda topic: status.update(f"looking at {topic}"))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    colours = {"ok": "green", "note": "yellow", "problem": "bold red"}
    for finding in findings:
        state = Text(finding.state, style=colours[finding.state])
        table.add_row(state, Text(finding.topic), Text(finding.text))
    console.print(table)
    problems = sum(finding.state == "problem" for finding in findings)
    if problems:
        console.print(
            f"{problems} problem(s): the course will not run properly before that is solved."
        )
        raise typer.Exit(1)
    try:
        versions.need("course", "the course")
    except LabError as error:
        typer.echo(f"This machine can run labkit; {error}")
    else:
        console.print("This machine can run the course.")


@app.command()
def new(
    course_dir: Annotated[Path, typer.Argument(help="A folder for your copy of the course.")],
) -> None:
    """Make a copy of the course, or bring one up to date; your changes stay."""
    _check_packages("new")
    from .course import delivery

    with _one_sentence():
        typer.echo(delivery.new_course(course_dir))


if __name__ == "__main__":
    app(prog_name="labkit")
