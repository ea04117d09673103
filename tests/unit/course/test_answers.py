"""An answer as a change of the solution: what is replaced, and what cannot be."""

from __future__ import annotations

import textwrap

import pytest

from labkit.course.answers import body, edit, whole

SOLUTION = textwrap.dedent("""
    import math


    def scale(x):
        for row in x:
            row /= 2
            dist.all_reduce(row)
        return x
""").strip("\n")


def changed(*pairs: tuple[str, str]) -> str:
    """Replace lines of the solution."""
    text = SOLUTION
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_a_part_of_a_line_is_replaced() -> None:
    assert edit("/= 2", "/= 4").written(SOLUTION, "scale") == changed(("/= 2", "/= 4"))


def test_several_parts_are_replaced_in_any_order() -> None:
    written = edit("return x", "return row", "import math", "import cmath").written
    assert written(SOLUTION, "scale") == changed(
        ("return x", "return row"), ("import math", "import cmath")
    )


def test_a_line_goes_with_its_indentation() -> None:
    written = edit("row /= 2", "").written(SOLUTION, "scale")
    assert written == changed(("        row /= 2\n", ""))
    assert edit("return x", "").written(SOLUTION, "scale") == changed(("\n    return x", ""))


def test_several_lines_are_written_without_their_indentation() -> None:
    answer = edit(
        """
        row /= 2
        dist.all_reduce(row)
        """,
        """
        if rank == 0:
            row *= 2

        dist.all_reduce(row)
        """,
    )
    assert answer.written(SOLUTION, "scale") == changed(
        ("        row /= 2\n", "        if rank == 0:\n            row *= 2\n\n")
    )


def test_lines_are_found_at_any_depth() -> None:
    solution = "def f():\n    if a:\n        b()\n        c()\n    b()\n    d()"
    written = edit("\nb()\nd()\n", "d()").written(solution, "f")
    assert written == "def f():\n    if a:\n        b()\n        c()\n    d()"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("x / 2", "x"), r"has 'x / 2' 0 times, not once"),
        (("row", "line"), r"has 'row' 3 times, not once"),
        (("/= 2", "/= 4", "row /= 2", ""), "two edits change the same place"),
    ],
)
def test_an_edit_that_does_not_fit(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        edit(*texts).written(SOLUTION, "scale")


@pytest.mark.parametrize("texts", [(), ("one",), ("one", "two", "three")])
def test_an_edit_has_pairs(texts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="an edit has pairs of texts"):
        edit(*texts)


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(SyntaxError):
        edit("return x", "return (x").written(SOLUTION, "scale")
    with pytest.raises(SyntaxError):
        body("return (x").written(SOLUTION, "scale")


def test_another_body() -> None:
    head = "import math\n\n\ndef scale(x):\n"
    assert body("return x").written(SOLUTION, "scale") == head + "    return x"
    answer = body("""
        if rank:
            return x

        return -x
    """)
    assert answer.written(SOLUTION, "scale") == (
        head + "    if rank:\n        return x\n\n    return -x"
    )


def test_another_body_of_a_class() -> None:
    solution = "class Counter:\n    steps = 0\n\n    def step(self):\n        self.steps += 1"
    written = body("def step(self):\n    pass").written(solution, "Counter")
    assert written == "class Counter:\n    def step(self):\n        pass"


def test_another_definition_leaves_the_rest_of_the_cell() -> None:
    written = whole("scale = abs").written(SOLUTION + "\n\n\nscale(3)", "scale")
    assert written == "import math\n\n\nscale = abs\n\n\nscale(3)"


@pytest.mark.parametrize("answer", [body("return x"), whole("other = abs")])
def test_a_solution_that_does_not_define_it(answer) -> None:
    with pytest.raises(ValueError, match="the solution does not define other"):
        answer.written(SOLUTION, "other")
