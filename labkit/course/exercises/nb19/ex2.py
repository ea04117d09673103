"""Exercise 19-2: find rank, local rank and world size under torchrun, srun, both or none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate
from .facts import Facts, fact, fact_is

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
#: The names that launchers set.
NAMES = {name for names in ENVIRONMENTS.values() for name in names} - {"HOME"}
#: What stands for an error because a launcher's name is not there.
LACKS, ELSEWHERE = "raises an error: there is no", " in os.environ"


class _Environment(dict[str, str]):
    """Note which names an answer asks for."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__(names)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.asked.append(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.append(name)
        return super().get(name, default)

    def lacked(self, error: Exception) -> str | None:
        """Return the launcher's name that was not there, if that has led to an error; "" if the
        answer has not asked here at all. None where the error is of another kind."""
        if isinstance(error, KeyError):
            name = error.args[0] if error.args else None
            if name in self:  # it was looked for elsewhere
                return f"{name}{ELSEWHERE}"
            return str(name) if name in NAMES else None
        if re.match(r"int\(\) argument must be .*'NoneType'", str(error)) and NAMES.issuperset(
            self.asked
        ):
            return next((name for name in reversed(self.asked) if name not in self), "")
        return None


def trial(answer: Callable[[dict[str, str]], Any], here: Here) -> Facts | None:
    """Ask in each environment."""

    def attempt(names: dict[str, str]) -> Any:
        environment = _Environment(names)
        try:
            found = answer(environment)
        except (KeyError, TypeError) as error:
            if (name := environment.lacked(error)) is None:
                raise
            return f"{LACKS} {name}".strip()
        return list(found) if isinstance(found, (tuple, list)) else found

    facts = {name: attempt(environment) for name, environment in ENVIRONMENTS.items()}
    return facts if any(found is not None for found in facts.values()) else None


def expected() -> dict[str, list[int]]:
    """Return what is known from how the environments were made."""
    return {TORCHRUN: [5, 2, 7], SRUN: [6, 1, 8], BOTH: [0, 0, 9], ALONE: [0, 0, 1]}


def _lacks(environment: str, begins: str = "") -> Predicate:
    """Return the predicate of a mistake that asks for a name which is not there."""
    return fact(environment, lambda found: str(found).startswith(f"{LACKS} {begins}".strip()))


EXERCISE = Exercise(
    id="19-2",
    title="Ask the launcher",
    answer="who_am_i",
    setup="import os",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "The answer, or the error, is the same in every case, although environment is not: "
            "read the names in the text, in capitals, from environment and not from os.environ.",
            when=lambda yours, expected, n: all(v == yours[ALONE] for v in yours.values()),
        ),
        Mistake(
            "A name that is in environment was looked for in os.environ: read all of them from "
            "environment.",
            when=lambda yours, expected, n: any(
                str(found).endswith(ELSEWHERE) for found in yours.values()
            ),
        ),
        Mistake(
            "Under torchrun it fails: Slurm's variables exist only in a Slurm job. Check which "
            "names are there.",
            when=_lacks(TORCHRUN, "SLURM_"),
        ),
        Mistake(
            "The values in an environment are strings: convert them with int().",
            when=fact(
                TORCHRUN,
                lambda found: isinstance(found, list) and any(isinstance(v, str) for v in found),
            ),
        ),
        Mistake(
            "LOCAL_RANK is unique on its node only, and other nodes have a 2 as well. The rank "
            "is in RANK.",
            when=fact_is(TORCHRUN, [2, 2, 7]),
        ),
        Mistake(
            "LOCAL_WORLD_SIZE counts the processes of this node; WORLD_SIZE counts all.",
            when=fact_is(TORCHRUN, [5, 2, 4]),
        ),
        Mistake(
            "srun alone sets no RANK. Check whether it is there, and otherwise read Slurm's "
            "variables.",
            when=fact_is(SRUN, expected()[ALONE]) | _lacks(SRUN),
        ),
        Mistake(
            "Where srun has started torchrun, Slurm's variables number the agents. The ranks are "
            "torchrun's: check first whether its variables are there, even if RANK is 0.",
            when=fact_is(BOTH, [1, 0, 2]),
        ),
        Mistake(
            "Rank 0 is a rank, but the number 0 counts as false, so `or` takes the next value. "
            "Check whether the name is there.",
            when=fact_is(BOTH, [1, 0, 9]),
        ),
        Mistake(
            "Without a launcher none of the names is there: return (0, 0, 1).",
            when=fact_is(ALONE, None) | _lacks(ALONE),
        ),
    ),
    hints=(
        'Three cases, and "RANK" in environment tells the first of them.',
        "torchrun comes first: it may have been started by srun, which sets its variables too.",
        "if, elif and else: torchrun's three names, Slurm's three names, or return 0, 0, 1. Then "
        "int(environment[name]) for each of the three.",
    ),
)
