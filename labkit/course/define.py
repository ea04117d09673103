"""Define the course's solution of an exercise where the answer lives, for those who are stuck."""

from __future__ import annotations

import linecache

from ..notebook import lab
from ..notebook.run import run
from ..rank_names import label
from ..runtime import request
from .exercise import Exercise
from .in_file import keep
from .in_notebook import names_of_notebook


def define(exercise: Exercise, source: str) -> str:
    """Run the cell that solves an exercise, on all ranks or in the notebook, or write its file; say
    so in a sentence.

    Raises
    ------
    LabStopped
        If the answer is for ranks and no lab is running.
    RankError
        If the cell raises an error on a rank.
    DataError
        If the file cannot be written.
    """
    first, _, rest = source.partition("\n")
    if exercise.where == "file":
        kept = keep(exercise, f"{rest}\n")
        yours = f" Your own file is now {kept}." if kept else ""
        return (
            f"labkit has written {exercise.answer}: it is now the course's solution of exercise "
            f"{exercise.id}.{yours}"
        )
    if exercise.where == "notebook":
        _define_here(exercise, source)
        where = "in this notebook"
    else:
        code = f"# The course's solution of {exercise.id}\n{rest}" if first == "%%px" else source
        where = f"on {_define_on_ranks(code)}"
    return (
        f"labkit has defined `{exercise.answer}` {where}: it is now the course's solution of "
        f"exercise {exercise.id}, and the cells below can use it."
    )


def _define_here(exercise: Exercise, source: str) -> None:
    name = f"<solution of {exercise.id}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), names_of_notebook())


def _define_on_ranks(code: str) -> str:
    session = lab.session_of(lab.running())
    ranks = range(session.cluster.size)
    run(request.cell(session.group, ranks, code))
    return label(ranks)
