"""Exercise 09-1: form the group where there is none, and leave it, however the job ends."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from ....base import times
from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate
from .facts import Facts

TRAINED = "trained"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Be in no group, with gloo on the loopback interface; afterwards all is as before."""
    name, variable = ("lo", "GLOO_SOCKET_IFNAME")
    before = os.environ.get(variable)
    if any(name == found for _, found in socket.if_nameindex()):
        os.environ[variable] = name
    _leave()
    try:
        yield
    finally:
        _leave()
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _work() -> str:
    """Do what only works in a group."""
    dist.all_reduce(torch.ones(1))
    return TRAINED


def _fail() -> None:
    raise ZeroDivisionError("a job that fails")


def trial(answer: Callable[[Callable[[], Any]], Any], here: Here) -> Facts:
    """Run a job, one that fails, and one inside a group that is there already."""

    def attempt(job: Callable[[], Any]) -> str:
        try:
            said = str(answer(job))
        except ZeroDivisionError as error:  # the job's own; any other is the answer's
            said = f"raises {type(error).__name__}"
        return f"{said}, {'a group is left' if dist.is_initialized() else 'no group is left'}"

    facts = {}
    soon = partial(dist.init_process_group, timeout=timedelta(seconds=times.TRIAL_ALONE))
    with _alone(), patch.object(dist, "init_process_group", soon):
        facts["a job"] = attempt(_work)
        _leave()
        facts["a job that fails"] = attempt(_fail)
        _leave()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        facts["inside a group"] = attempt(_work)
    return facts


def expected() -> Facts:
    """Leave a group exactly where there was one before."""
    return {
        "a job": f"{TRAINED}, no group is left",
        "a job that fails": "raises ZeroDivisionError, no group is left",
        "inside a group": f"{TRAINED}, a group is left",
    }


def _said(fact: str, text: str) -> Predicate:
    """Return the predicate of a mistake of 09-1: a fact that begins or ends with a text."""
    return Predicate(lambda yours, *_: yours[fact].startswith(text) or yours[fact].endswith(text))


EXERCISE = Exercise(
    id="09-1",
    title="Form the group, and leave it",
    answer="run",
    setup="import torch.distributed as dist",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "The job's result is lost, or job is not called: return what job() returns, whether a "
            "group was there or not.",
            when=_said("a job", "None") | _said("inside a group", "None"),
        ),
        Mistake(
            "No group is formed, and the job's collective needs one: call "
            "dist.init_process_group first.",
            raises=r"Default process group has not been initialized",
        ),
        Mistake(
            "The group waits for processes that are not there: this one is alone, rank=0 and "
            "world_size=1.",
            raises=r"^DistStoreError: [Ww]ait timeout",
        ),
        Mistake(
            "The group is still there after the job: call dist.destroy_process_group().",
            when=_said("a job", "a group is left"),
        ),
        Mistake(
            "A job that fails leaves its group behind, and the next call cannot form one. Put "
            "what has to happen in any case into finally.",
            when=_said("a job that fails", "a group is left"),
        ),
        Mistake(
            "What run returns is not what the job returns: call job(), and return its result, in a "
            "group that is there already too.",
            when=lambda yours, expected, n: all(
                not yours[name].startswith((TRAINED, "raises"))
                for name in ("a job", "inside a group")
            ),
        ),
        Mistake(
            "The job's error is swallowed, so the caller of run takes a failed job for a "
            "finished one. Let the error through.",
            when=lambda yours, expected, n: not yours["a job that fails"].startswith("raises"),
        ),
        Mistake(
            "Inside a group it tries to form a second one, which torch refuses. Check "
            "dist.is_initialized() first.",
            raises=r"trying to initialize the default process group twice",
        ),
        Mistake(
            "It destroys a group that it has not formed. Leave that to the code that formed it.",
            when=_said("inside a group", "no group is left"),
        ),
    ),
    hints=(
        "Three cases: a group is there already; the job works; the job fails.",
        "If dist.is_initialized() is true, only call the job. Otherwise form the group, and then "
        "use try and finally.",
        "init_process_group stands before the try, the job inside it. What stands under finally "
        "runs after a return as well as after an error.",
    ),
)
