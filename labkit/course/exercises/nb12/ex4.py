"""Exercise 12-4: write a script that a launcher can kill at any time and start again.

A kill is played by an exception that is none of an answer's own: nothing of torch is replaced,
and no process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from .facts import Facts, fact_is, raises

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
    """Run the script; where it is killed, once more, as a launcher does. Return the last state.

    An error of the script is its own, and raised. Only what a start raises after a kill in a save
    may come of the file: a script with a slip of another kind has failed before, in a step.
    """
    in_save = job.fault == IN_SAVE
    for start in range(2):
        try:
            return answer(job.path, STEPS, job.step)
        except _Killed:
            continue
        except Exception as error:
            if in_save and start == 1:
                return raises(error)
            raise
    return "killed"


def trial(answer: Callable[..., Any], here: Here) -> Facts:
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


def expected() -> Facts:
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


EXERCISE = Exercise(
    id="12-4",
    title="Survive a restart",
    answer="resume",
    setup="""
        import os
        import pickle
        from pathlib import Path

        import torch
    """,
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "It never calls step: for i in range(…): state = step(i, state).",
            when=fact_is(IN_STEP, []),
            shown_by={"prints": body("print(list(range(steps)))")},
        ),
        Mistake(
            "At the first start there is no file yet: check os.path.exists(path).",
            raises=r"^FileNotFoundError: .*/in-a-step\.pt'(?! ->)",
            shown_by={
                "loads what is not there": edit(
                    """
                    now = {"next": 0, "state": None}
                    if os.path.exists(path):
                        now = torch.load(path, weights_only=True)
                    """,
                    "now = torch.load(path, weights_only=True)",
                ),
            },
        ),
        Mistake(
            "The second run begins at step 0. Load the file if there is one, and save after each "
            "step: a run that is killed never reaches a save at its end.",
            when=fact_is(IN_STEP, FROM_0),
            shown_by={
                "saves nothing": body("""
                    state = None
                    for i in range(steps):
                        state = step(i, state)
                    return state
                """),
                "saves at the end": body("""
                    now = {"next": 0, "state": None}
                    if os.path.exists(path):
                        now = torch.load(path, weights_only=True)
                    state = now["state"]
                    for i in range(now["next"], steps):
                        state = step(i, state)
                    torch.save({"next": steps, "state": state}, f"{path}.new")
                    os.replace(f"{path}.new", path)
                    return state
                """),
                "does not load": body("""
                    state = None
                    for i in range(steps):
                        state = step(i, state)
                        torch.save({"next": i + 1, "state": state}, f"{path}.new")
                        os.replace(f"{path}.new", path)
                    return state
                """),
            },
        ),
        Mistake(
            "The step that was killed is skipped, because the file says that it was done. Save "
            "after the step, and let next be the number of the step to come.",
            when=fact_is(IN_STEP, _begun(*range(KILLED + 1, STEPS))),
            shown_by={
                "saves before the step": body("""
                    now = {"next": 0, "state": None}
                    if os.path.exists(path):
                        now = torch.load(path, weights_only=True)
                    state = now["state"]
                    for i in range(now["next"], steps):
                        torch.save({"next": i + 1, "state": state}, f"{path}.new")
                        os.replace(f"{path}.new", path)
                        state = step(i, state)
                    return state
                """),
                "goes on one too far": edit(
                    "now = torch.load(path, weights_only=True)",
                    """
                    now = torch.load(path, weights_only=True)
                    now["next"] += 1
                    """,
                ),
            },
        ),
        Mistake(
            "A step is done twice. After step i the step to come is i + 1: save that as next.",
            when=fact_is(IN_STEP, _begun(*range(KILLED - 1, STEPS))),
            shown_by={"saves the number of the step": edit("i + 1,", "i,")},
        ),
        Mistake(
            "It goes on with the right step, but with the state of a first start: load both from "
            "the file.",
            when=lambda yours, expected, n: (
                yours[IN_STEP] == expected[IN_STEP] and yours[STATES][0] == [KILLED, STEPS - 1]
            ),
            shown_by={
                "forgets the state": body("""
                    start, state = 0, None
                    if os.path.exists(path):
                        start = torch.load(path, weights_only=True)["next"]
                    for i in range(start, steps):
                        state = step(i, state)
                        torch.save({"next": i + 1, "state": state}, f"{path}.new")
                        os.replace(f"{path}.new", path)
                    return state
                """),
            },
        ),
        Mistake(
            "After a kill in the middle of a save, the next start fails or begins at step 0, or "
            "path was written in place. Save to a new file, then call os.replace(new, path): so "
            "there is a good file at any time.",
            when=lambda yours, expected, n: (
                yours[IN_SAVE] == FROM_0
                or str(yours[IN_SAVE]).startswith("raises")
                or yours[IN_PLACE]
            ),
            shown_by={
                "saves in place": edit(
                    """
                    torch.save(now, f"{path}.new")
                    os.replace(f"{path}.new", path)
                    """,
                    "torch.save(now, path)",
                ),
                "saves in place and hopes": body("""
                    try:
                        now = torch.load(path, weights_only=True)
                    except Exception:
                        now = {"next": 0, "state": None}
                    for i in range(now["next"], steps):
                        now = {"next": i + 1, "state": step(i, now["state"])}
                        torch.save(now, path)
                    return now["state"]
                """),
                "writes in place what it has made": edit(
                    "now = torch.load(path, weights_only=True)",
                    "now = pickle.loads(Path(path).read_bytes())",
                    'torch.save(now, f"{path}.new")',
                    "content = pickle.dumps(now)",
                    'os.replace(f"{path}.new", path)',
                    "Path(path).write_bytes(content)",
                ),
                "moves the old one away first": edit(
                    """
                    torch.save(now, f"{path}.new")
                    os.replace(f"{path}.new", path)
                    """,
                    """
                    if os.path.exists(path):
                        os.replace(path, f"{path}.old")
                    torch.save(now, path)
                    """,
                ),
            },
        ),
        Mistake(
            "A start after the end takes the last step again: save after each step, the last one "
            "too.",
            when=fact_is(AGAIN, [STEPS - 1]),
            shown_by={
                "not after the last step": body("""
                    now = {"next": 0, "state": None}
                    if os.path.exists(path):
                        now = torch.load(path, weights_only=True)
                    state = now["state"]
                    for i in range(now["next"], steps):
                        torch.save({"next": i, "state": state}, f"{path}.new")
                        os.replace(f"{path}.new", path)
                        state = step(i, state)
                    return state
                """),
            },
        ),
        Mistake(
            "The last state is not returned: return it.",
            when=fact_is(STATES, [None] * 3),
            shown_by={"returns nothing": edit('return now["state"]', "")},
        ),
    ),
    also_wrong={
        "a typing error": Wrong(edit("torch.save(now,", "torch.sav(now,"), says="AttributeError"),
        "a slip at the second start": Wrong(
            edit('now["next"], steps', 'now["nxt"] if os.path.exists(path) else 0, steps'),
            says="KeyError",
        ),
        "no state when all is done": Wrong(
            body("""
                first, old = 0, None
                if os.path.exists(path):
                    first, old = torch.load(path, weights_only=True).values()
                for i in range(first, steps):
                    old = state = step(i, old)
                    torch.save({"next": i + 1, "state": state}, f"{path}.new")
                    os.replace(f"{path}.new", path)
                return state
            """),
            says="UnboundLocalError",
        ),
    },
    another=body("""
        try:
            start, state = torch.load(path).values()
        except FileNotFoundError:
            start, state = 0, None
        while start < steps:
            state = step(start, state)
            start += 1
            new = Path(path).with_suffix(".draft")
            with open(new, "wb") as file:
                torch.save({"next": start, "state": state}, file)
                file.flush()
                os.fsync(file.fileno())
            new.rename(path)
        return state
    """),
    hints=(
        "A dictionary with next and state is all that the loop needs: the one in the file, or "
        "that of a first start, 0 and None.",
        'Loop over range(now["next"], steps). After each step make a new dictionary, with i + '
        "1 and what step returned, and save it.",
        'Save to f"{path}.new", then os.replace it onto path. At the start, torch.load(path) '
        "only if os.path.exists(path).",
    ),
)
