"""How a cell is left: which ends are errors, and what is said of them."""

from __future__ import annotations

import linecache
import pickle
import sys
from types import SimpleNamespace

import pytest

from labkit.rank import leaving


def left(code: str, **names: object) -> SystemExit:
    """Run the text of a cell; return what it was left by."""
    linecache.cache["In[4]"] = (len(code), None, code.splitlines(keepends=True), "In[4]")
    exit = leaving.Exit(None)
    with pytest.raises(SystemExit) as caught:
        exec(compile(code, "In[4]", "exec"), {"exit": exit, "quit": exit, "sys": sys, **names})
    return caught.value


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("\nsys.exit('no data')", "sys.exit('no data') ended the cell in In[4], line 2"),
        ("exit(2)", "exit(2) ended the cell in In[4], line 1"),
        ("def f():\n    quit(3)\nf()", "quit(3) ended the cell in In[4], line 2"),
        ("raise SystemExit('x')", "raise SystemExit('x') ended the cell in In[4], line 1"),
        ("e = SystemExit(7)\nraise e", "raise SystemExit(7) ended the cell in In[4], line 2"),
        ("sys.exit(True)", "sys.exit(True) ended the cell in In[4], line 1"),
        ("sys.exit('')", "sys.exit('') ended the cell in In[4], line 1"),
        ("sys.exit(0.0)", "sys.exit(0.0) ended the cell in In[4], line 1"),
    ],
)
def test_an_error_names_the_call_and_its_line(code: str, sentence: str) -> None:
    error = left(code)
    assert leaving.sentence(error) == sentence
    assert str(leaving.as_error(error)) == sentence
    assert leaving.lines(error)[0] == f"SystemExit: {sentence}"


@pytest.mark.parametrize(
    "code", ["exit()", "quit(0)", "sys.exit()", "raise SystemExit", "sys.exit(False)", "exit(None)"]
)
def test_what_a_program_ends_well_with_is_no_error(code: str) -> None:
    assert leaving.as_error(left(code)) is None


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("exit()", ""),
        ("x = 1\nexit()  # done\n# and no more\n", ""),
        ("exit()\nx = 1", "exit() ended the cell in In[4], line 1.\n"),
        ("def f():\n    exit()\n    x = 1\nf()", "exit() ended the cell in In[4], line 2.\n"),
    ],
)
def test_a_good_end_is_told_where_lines_are_left_out(
    code: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving.show(left(code))
    assert capsys.readouterr().err == told


PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('epochs')\n"


def test_a_parser_says_how_to_give_it_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [leaving.PROGRAM])
    assert leaving.sentence(left(PARSER + "p.parse_args()")) == (
        "argparse ended the cell in In[4], line 4: the following arguments are required: epochs. "
        "To give it arguments, write sys.argv = ['train.py', '3'] above that line, or run the "
        "program as a script with %%torchrun --nproc-per-node=2 -- 3"
    )
    assert leaving.as_error(left("import argparse\nargparse.ArgumentParser().exit()")) is None


def test_arguments_that_the_cell_gives_itself_are_its_own() -> None:
    assert leaving.sentence(left(PARSER + "p.parse_args(['1', '2'])")) == (
        "argparse ended the cell in In[4], line 4: unrecognized arguments: 2"
    )


def test_a_library_that_leaves_is_named() -> None:
    error = left(PARSER + "p.exit(3)")
    assert leaving.sentence(error) == ("sys.exit(3) of argparse ended the cell in In[4], line 4")


def test_what_leaves_a_cell_is_pythons_own_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(leaving.Exit(None))) is exit


def test_the_exit_of_an_engine_takes_what_ipykernels_takes() -> None:
    shell = SimpleNamespace()
    with pytest.raises(SystemExit) as caught:
        leaving.Exit(None)(keep_kernel=True)
    assert caught.value.code is None
    assert vars(shell) == {}
