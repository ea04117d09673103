"""The examples in the docstrings of the public names run, and give what they show."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import labkit
from labkit.notebook.lab import current

#: Errors and reports are in colour; the examples show them without.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: Their docstrings, where they have one, tell what ``lab["x"]`` does.
OPERATORS = ("__getitem__", "__setitem__")


def public() -> Iterator[tuple[str, Any]]:
    """Yield name and object of what has to have an example."""
    yield "labkit", labkit
    for name in labkit.__all__:
        value = getattr(labkit, name)
        if isinstance(value, ModuleType):
            yield name, value
            for inside in value.__all__:
                yield from with_methods(f"{name}.{inside}", getattr(value, inside))
        else:
            plain = inspect.isclass(value) or inspect.isroutine(value)
            yield from with_methods(name, value if plain else type(value))  # labkit.check


def with_methods(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a function, or a class and its own public methods and properties."""
    yield name, value
    if inspect.isclass(value):
        for inside, member in vars(value).items():
            kinds = inspect.isfunction(member), isinstance(member, property | classmethod)
            wanted = not inside.startswith("_") or (inside in OPERATORS and member.__doc__)
            if any(kinds) and wanted:
                yield f"{name}.{inside}", member


PUBLIC = dict(public())


class Checker(doctest.OutputChecker):
    """Compare without colours."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, COLOUR.sub("", got), optionflags)


@pytest.fixture(scope="module")
def _stopped_at_the_end() -> Iterator[None]:
    yield
    if (lab := current()) is not None:
        lab.stop()


@pytest.fixture
def lab(_stopped_at_the_end: None) -> labkit.Lab:
    """Four ranks; fresh ones after an example that has started a lab of its own."""
    lab = current()
    return lab if lab is not None and len(lab) == 4 else labkit.start(4)


def test_every_docstring_has_an_example() -> None:
    lacking = [name for name, value in PUBLIC.items() if ">>> " not in (value.__doc__ or "")]
    assert lacking == []


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_gives_what_it_shows(
    name: str, lab: labkit.Lab, request: pytest.FixtureRequest
) -> None:
    if name.startswith("hosts") and (reason := labkit.hosts.unavailable_reason()):
        pytest.skip(reason)
    # As in a notebook: functions of `__main__` travel to the ranks with what they use.
    names = {"labkit": labkit, "lab": lab, "__name__": "__main__"}
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(PUBLIC[name]) or "", names, name, None, None
    )
    report: list[str] = []
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=doctest.ELLIPSIS)
    result = runner.run(example, out=report.append)
    assert result.attempted
    assert not result.failed, "".join(report)
