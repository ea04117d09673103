"""A cell that calls ``exit()`` or ``sys.exit()`` ends there; its rank and its variables stay."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit
from labkit import Deadlock, RankError
from tests.support.cells import results, run_cell
from tests.support.events import Marks

HERE = "{} ended the cell in In[7], line 2"


@pytest.fixture(scope="module")
def lab():
    with labkit.start(2) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _same_ranks(lab: labkit.Lab):
    """Fail where a rank is another process after a test: its variables would be gone."""
    import os

    before = lab.run(os.getpid)
    yield
    assert lab.run(os.getpid) == before


def named(code: str) -> str:
    return f"#px In[7]\n{code}"


@pytest.mark.parametrize(
    "leave",
    ["exit()", "quit()", "exit(0)", "sys.exit()", "raise SystemExit", "get_ipython().ask_exit()"],
)
def test_a_cell_that_is_left_is_over(lab: labkit.Lab, leave: str, marks: Marks) -> None:
    code = f"import sys\ndef f():\n    {leave}\n    {marks.make()}\nkeep = 5\nf()\n{marks.make()}"
    run_cell(lab, code)
    assert marks.count() == 0
    assert lab["keep"] == [5, 5]


@pytest.mark.parametrize(
    "leave", ["exit(2)", "quit('no data')", "sys.exit(2)", "raise SystemExit('x')", "sys.exit('')"]
)
def test_a_code_is_an_error_with_its_line(lab: labkit.Lab, leave: str) -> None:
    with pytest.raises(RankError) as caught:
        run_cell(lab, named(f"if rank: {leave}"))
    assert str(caught.value) == f"rank 1: SystemExit: {HERE.format(leave)}"
    (block,) = caught.value.blocks
    assert "-->   2 if rank:" in block
    assert "Ctrl-D" not in block + "".join(o.stderr for o in run_cell(lab, "pass"))


def test_no_advice_of_ipythons_even_where_warnings_are_errors(lab: labkit.Lab) -> None:
    code = "import sys, warnings\nwith warnings.catch_warnings(action='error'):\n    sys.exit(3)"
    with pytest.raises(RankError, match=r"^ranks 0–1: SystemExit: sys.exit\(3\) ended"):
        run_cell(lab, code)


def test_ranks_that_wait_for_one_that_left_are_told(lab: labkit.Lab) -> None:
    with pytest.raises(Deadlock, match=r"rank 0 waits for rank 1, which has ended its cell"):
        run_cell(lab, "if rank: exit()\ndist.barrier()")
    with pytest.raises(RankError, match=r"(?s)rank 1: SystemExit: .*rank 0 waited"):
        run_cell(lab, "if rank: exit('gone')\ndist.barrier()")


def test_functions_of_modules_and_scripts_leave_too(lab: labkit.Lab, tmp_path: Path) -> None:
    module = tmp_path / "leaving_module.py"
    module.write_text("import sys\ndef f():\n    quit(4)\nif __name__ == '__main__':\n    f()\n")
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport leaving_module\n"
    with pytest.raises(RankError, match=r"^ranks 0–1: SystemExit: quit\(4\) ended the cell in"):
        run_cell(lab, code + "leaving_module.f()")
    with pytest.raises(RankError, match=r"^ranks 0–1: SystemExit: quit\(4\) ended the cell in"):
        run_cell(lab, f"import runpy\nrunpy.run_path({str(module)!r}, run_name='__main__')")
    with pytest.raises(RankError, match=r"^ranks 0–1: SystemExit: quit\(4\) ended the cell in"):
        run_cell(lab, f"%run {module}\n")


def test_a_function_of_the_notebook_leaves(lab: labkit.Lab) -> None:
    def leave(code: object) -> None:
        import sys

        sys.exit(code)

    assert lab.run(leave, None) == [None, None]
    with pytest.raises(RankError, match=r"^ranks 0–1: SystemExit: sys.exit\('no'\) ended the call"):
        lab.run(leave, "no")
    with pytest.raises(RankError, match=r"SystemExit: exit\(6\) ended the call"):
        lab.run(lambda: exit(6))
    assert len(lab.timeline("exit()").ranks) == 2
    with pytest.raises(RankError, match=r"SystemExit: sys.exit\(3\) ended the cell in"):
        lab.timeline("import sys\nsys.exit(3)")


def test_a_thread_that_leaves_ends_alone(lab: labkit.Lab) -> None:
    code = "import threading\nt = threading.Thread(target=exit)\nt.start()\nt.join()\n'on'"
    assert results(run_cell(lab, code)) == ["'on'"] * 2


@pytest.mark.parametrize("leave", ["exit(4)", "sys.exit(4)"])
def test_a_task_that_leaves_ends_the_cell_that_awaits_it(lab: labkit.Lab, leave: str) -> None:
    code = f"import asyncio, sys\nasync def f():\n    {leave}\nawait asyncio.gather(f())"
    with pytest.raises(RankError, match=r"^ranks 0–1: SystemExit: .*\(4\) ended the cell"):
        run_cell(lab, code)


def test_a_task_that_nobody_awaits_ends_alone(lab: labkit.Lab) -> None:
    code = (
        "import asyncio\nasync def f():\n    exit(4)\n"
        "task = asyncio.create_task(f())\nwhile not task.done(): await asyncio.sleep(0.01)\n'on'"
    )
    assert results(run_cell(lab, code)) == ["'on'"] * 2
    run_cell(lab, "del task")


def test_a_program_finds_no_arguments_and_says_how_to_give_them(lab: labkit.Lab) -> None:
    code = named(
        "import argparse, sys\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('epochs', type=int)\nparser.parse_args().epochs"
    )
    with pytest.raises(RankError) as caught:
        run_cell(lab, code)
    assert str(caught.value).startswith(
        "ranks 0–1: SystemExit: argparse ended the cell in In[7], line 5: the following arguments "
        "are required: epochs. To give it arguments, write sys.argv = "
    )
    given = run_cell(lab, f"import sys\nsys.argv = ['train.py', '3']\n{code}")
    assert results(given) == ["3", "3"]
    helped = run_cell(lab, "sys.argv[1:] = ['-h']\nparser.parse_args()")
    assert all(o.stdout.startswith("usage: train.py ") for o in helped)


def test_names_of_pythons_stay_after_a_reset(lab: labkit.Lab) -> None:
    run_cell(lab, "%reset -f")
    run_cell(lab, "exit()\nkeep = 0")
    with pytest.raises(labkit.UsageError):
        lab["keep"]
