"""Check an answer, give a hint, show a solution: what the learner calls."""

from __future__ import annotations

import inspect
import linecache
import re
import textwrap
from collections import Counter

from ..base.errors import WIDTH, LabError, UsageError
from ..base.rank_names import label
from ..notebook import shell
from . import catalogue, edition, learner
from .exercise import Exercise
from .judge import judge
from .progress import Entry, Progress
from .report import BAD, GOOD, report
from .result import Result
from .sentences import advice
from .verdict import Verdict, Verdicts, printed

_last: str | None = None  #: the exercise that was checked last
_given: Counter[str] = Counter()  #: hints of each exercise
#: Of each exercise that did not pass: what the last verdict said, and what to say first of it.
_said: dict[str, str] = {}
_own: dict[str, str] = {}


def examine(exercise: Exercise) -> tuple[Result, Verdict]:
    """Try the answer to an exercise where it lives, and judge it."""
    if exercise.where == "notebook":
        from .in_notebook import try_in_notebook

        result = try_in_notebook(exercise)
    elif exercise.where == "file":
        from .in_file import try_file

        result = try_file(exercise)
    else:
        from .on_ranks import try_on_ranks

        result = try_on_ranks(exercise)
    return result, judge(result)


class Check:
    """Try your answer to an exercise and print it beside what is expected.

    Parameters
    ----------
    name
        The exercise's id, such as ``"03-2"``.

    Returns
    -------
    Verdict
        What came of it, true if the answer has passed. As the last line of a cell it shows nothing
        more.

    Raises
    ------
    UsageError
        If there is no such exercise, or nothing to check yet.
    LabStopped
        If the answer is for ranks and no lab is running.

    Examples
    --------
    An answer is what a ``%%px`` cell has defined; a function that is sent does as well.

    >>> import torch.distributed as dist
    >>> lab["neighbour"] = lambda: (dist.get_rank() + 1) % dist.get_world_size()
    >>> verdict = labkit.check("00-3")
    00-3  Name your neighbour
            yours  expected
    rank 0  1      1         ✓
    rank 1  2      2         ✓
    rank 2  3      3         ✓
    rank 3  0      0         ✓
    00-3 passed.
    >>> verdict.passed
    True

    ``labkit.check.all()`` checks all exercises of a notebook.
    """

    def __call__(self, name: str) -> Verdict:
        """Try the answer to an exercise; ``labkit.check`` says the rest."""
        result, verdict = _check(catalogue.find(name))
        verdict = printed(verdict, report(result, verdict))
        kept = _note(result, verdict)
        if kept is not None and (said := learner.standing(kept, verdict.exercise)):
            _print(said)
        return verdict

    def all(self, notebook: str | None = None) -> dict[str, Verdict]:
        """Try your answers to all exercises of a notebook; print a line for each, and how many
        have passed.

        Parameters
        ----------
        notebook
            Its number, such as ``"03"``. None: this one, where the front end says which it is
            (JupyterLab and VS Code do); else those with an exercise that you have checked.

        Returns
        -------
        dict of str to Verdict
            By id. What cannot be tried, because its cell has not run or no lab is running, has not
            passed, and its ``sentence`` says why.

        Raises
        ------
        UsageError
            If it is not known which exercises are meant.

        Examples
        --------
        >>> lab["average_gradients"], lab["neighbour"] = (lambda model: None), (lambda: 0)
        >>> verdicts = labkit.check.all("00")
        ✗ 00-1  Average the gradients  not yet
        ...
        0 of 4 passed; labkit.check("00-1") says more.
        >>> [name for name, verdict in verdicts.items() if verdict]
        []
        """
        global _last
        exercises = [catalogue.find(name) for name in _ids(notebook)]
        verdicts = Verdicts()
        for exercise in exercises:
            try:
                result, verdict = _check(exercise)
                mark, more = (GOOD, "") if verdict else (BAD, "  not yet")
                _note(result, verdict)
            except LabError as error:
                verdict = Verdict(exercise.id, type(error).__name__, str(error))
                mark, more = " ", "  not tried"
            verdicts[exercise.id] = verdict
            verdicts.print(f"{mark} {exercise.id}  {exercise.title}{more}")
        is_open = [name for name, verdict in verdicts.items() if not verdict]
        more = "."
        if is_open:
            _last = is_open[0]
            more = f'; labkit.check("{_last}") says more.'
        verdicts.print(f"{len(verdicts) - len(is_open)} of {len(verdicts)} passed{more}")
        return verdicts

    def __repr__(self) -> str:
        return "labkit.check"


check = Check()


def _check(exercise: Exercise) -> tuple[Result, Verdict]:
    """Try an answer, and remember what hints need of it."""
    global _last
    _last = exercise.id
    result, verdict = examine(exercise)
    _said[exercise.id], _own[exercise.id] = verdict.sentence, _first_hint(result, verdict)
    return result, verdict


def _note(result: Result, verdict: Verdict) -> Progress | None:
    """Note a check of an answer in the learner's progress; a stub is no answer."""
    if not result.was_tried:
        return None
    passed, mistake = verdict.passed, verdict.mistake
    return learner.note(verdict.exercise, lambda entry, now: entry.check(passed, mistake, now))


def _ids(notebook: str | None) -> list[str]:
    """List the exercises of a notebook by its number, or of this one if it is None."""
    if notebook is not None:
        return catalogue.ids(catalogue.check_number(notebook))
    file = shell.file_of_notebook()
    if file is not None and (found := edition.exercises_in(file.read_bytes())):
        return found
    checked = {name.partition("-")[0] for name in _said}
    if found := [name for n in catalogue.numbers() if n in checked for name in catalogue.ids(n)]:
        return found
    raise UsageError(
        "It is not known which notebook this is: give its number, as in "
        'labkit.check.all("00"), or check one of its exercises first.'
    )


def _first_hint(result: Result, verdict: Verdict) -> str:
    """Return the hint for what a check has found, "" if it needs none of its own."""
    mistakes = result.exercise.mistakes
    known = next((m for m in mistakes if m.sentence == verdict.mistake), None)
    if known is not None:
        return known.hint
    cause = result.cause
    return advice(cause) if cause is not None and verdict.name == cause.name else ""


def hint(name: str | None = None) -> None:
    """Print the next hint for an exercise: the one checked last if none is named.

    What the last check has found comes first, then three hints, each stronger than the one before.
    One that the verdict has given already is left out.

    Raises
    ------
    UsageError
        If there is no such exercise, or none has been checked yet.

    Examples
    --------
    >>> labkit.hint("00-1")
    Hint 1 of 3 for 00-1: ...
    """
    exercise = _chosen(name, "hint")
    if own := _own.pop(exercise.id, ""):
        _print(f"Hint for what the check of {exercise.id} found: {own}")
        learner.note(exercise.id, Entry.hint)
        return
    said = _said.get(exercise.id, "")
    most = len(exercise.hints)
    while _given[exercise.id] < most:
        text = exercise.hints[_given[exercise.id]]
        _given[exercise.id] += 1
        if not repeats(text, said):
            _print(f"Hint {_given[exercise.id]} of {most} for {exercise.id}: {text}")
            learner.note(exercise.id, Entry.hint)
            return
    if exercise.is_own and not exercise.solution:
        _print(f"There are no{' more' if most else ''} hints for {exercise.id}.")
        return
    _print(
        f'There are no more hints for {exercise.id}; labkit.solution("{exercise.id}") shows a '
        f'solution, and labkit.solution("{exercise.id}", define=True) defines it.'
    )


def repeats(text: str, said: str) -> bool:
    """Return whether a hint says hardly more than what has been said."""
    words, known = (set(re.findall(r"\w+", t.lower())) for t in (text, said))
    return bool(words) and len(words & known) >= 0.75 * len(words)


def _print(text: str) -> None:
    for line in text.split("\n"):  # lines of code stay as they are
        print(line if line.startswith(" ") else textwrap.fill(line, WIDTH, break_on_hyphens=False))


def solution(name: str | None = None, *, define: bool = False) -> None:
    """Print a solution of an exercise, as the course's own notebook has it: the exercise checked
    last if none is named.

    Parameters
    ----------
    name
        The exercise's id, such as ``"03-2"``.
    define
        Define it where the answer lives, on the ranks or in the notebook, rather than print it:
        the cells that use the answer work then. A file is written, and yours kept beside it.

    Raises
    ------
    UsageError
        If there is no such exercise, or none has been checked yet.
    LabStopped
        If it is to be defined on ranks and no lab is running.

    Examples
    --------
    >>> labkit.solution("00-3")
    %%px
    def neighbour()...
        return (rank + 1) % world_size
    >>> labkit.solution("00-3", define=True)
    labkit has defined `neighbour` on ranks 0–3: ...
    """
    exercise = _chosen(name, "solution")
    source = _solution_of(exercise)
    if define:
        _print(_define(exercise, source))
    else:
        print(source)
    learner.note(exercise.id, Entry.see_solution)


def _solution_of(exercise: Exercise) -> str:
    """Return the cell that solves an exercise; raise UsageError if there is none."""
    if not exercise.is_own:
        return edition.solution(exercise.id)
    if not exercise.solution.strip():
        raise UsageError(f"Exercise {exercise.id} came without a solution.")
    return inspect.cleandoc(exercise.solution)


def _chosen(name: str | None, function: str) -> Exercise:
    if name is None and _last is None:
        raise UsageError(
            f'No exercise has been checked yet: name one, as in labkit.{function}("00-1").'
        )
    return catalogue.find(_last if name is None else name)


def _define(exercise: Exercise, source: str) -> str:
    """Run the cell that solves an exercise, on all ranks or in the notebook, or write its file; say
    so in a sentence."""
    first, _, rest = source.partition("\n")
    whose = "the" if exercise.is_own else "the course's"
    if exercise.where == "file":
        from .in_file import keep

        kept = keep(exercise, f"{rest}\n")
        yours = f" Your own file is now {kept}." if kept else ""
        return (
            f"labkit has written {exercise.answer}: it is now {whose} solution of exercise "
            f"{exercise.id}.{yours}"
        )
    if exercise.where == "notebook":
        _define_here(exercise, source)
        where = "in this notebook"
    else:
        comment = f"# {whose.capitalize()} solution of {exercise.id}"
        code = f"{comment}\n{rest}" if first == "%%px" else source
        where = f"on {_define_on_ranks(code)}"
    return (
        f"labkit has defined `{exercise.answer}` {where}: it is now {whose} solution of "
        f"exercise {exercise.id}, and the cells below can use it."
    )


def _define_here(exercise: Exercise, source: str) -> None:
    from .in_notebook import names_of_notebook

    name = f"<solution of {exercise.id}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), names_of_notebook())


def _define_on_ranks(code: str) -> str:
    from ..notebook import lab
    from ..notebook.run import run
    from ..runtime import request

    session = lab.session_of(lab.running())
    ranks = range(session.cluster.size)
    run(request.cell(session.group, ranks, code))
    return label(ranks)
