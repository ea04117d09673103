"""%%px in a real IPython shell on four ranks."""

import re

import pytest
from jupyter_client.manager import start_new_kernel

import labkit
from labkit import CellSyntaxError, LabError, RankDied, RankError, UsageError
from labkit.base.errors import Interrupted
from labkit.notebook.lab import parse_ranks
from tests.support.events import HANG_SECONDS, busy_with, stop_pressed


@pytest.fixture(scope="module")
def lab(shell):
    with labkit.start(4) as started:
        yield started


@pytest.fixture
def px(shell, lab, capsys):
    """Run a %%px cell; return what it wrote to stdout and stderr, without colours."""

    def run(cell, line=""):
        capsys.readouterr()
        shell.run_cell_magic("px", line, cell)
        return tuple(re.sub(r"\x1b\[[0-9;]*m", "", text) for text in capsys.readouterr())

    return run


def test_prints_come_in_rank_order(px):
    cell = "import time\ntime.sleep((3 - rank) / 20)\nprint('rank', rank)\n"
    assert px(cell)[0] == "".join(f"rank {r}: rank {r}\n" for r in range(4))


def test_equal_outputs_share_a_block(px):
    assert px("print('same')\n")[0] == "ranks 0–3: same\n"
    assert px("rank // 2\n")[0] == "ranks 0–1: 0\nranks 2–3: 1\n"


def test_equal_tensors_share_a_block_whatever_gpu_they_are_on(px):
    px(
        "from labkit.rank.torch_internals import reprs\n"
        "from torch._subclasses.fake_tensor import FakeTensorMode  # needs no GPU\n"
        "reprs.install(torch.device('cuda', rank))\n"
        "with FakeTensorMode():\n"
        "    here, there = (torch.empty(2, device=f'cuda:{i}') for i in (rank, 3))\n"
    )
    assert px("here\n")[0] == "ranks 0–3: FakeTensor(..., size=(2,))\n"
    assert px("print([there])\n")[0] == (
        "ranks 0–2: [FakeTensor(..., device='cuda:3', size=(2,))]\n"
        "rank 3: [FakeTensor(..., size=(2,))]\n"
    )


def test_a_value_that_cannot_be_shown_is_an_error_with_a_name(px):
    broken = "class Broken:\n    def __repr__(self):\n        raise ValueError('no picture')\n"
    with pytest.raises(RankError, match=r"^ranks 0–3: ValueError: no picture$"):
        px(broken + "Broken()\n")


@pytest.mark.parametrize("text", ["%%px", "%%px\n", "%%px --ranks 2\n\n  \n"])
def test_a_cell_without_a_body_does_nothing(shell, px, capsys, text):
    px("pass\n")  # after the start of the lab
    done = shell.run_cell(text)
    assert done.success
    assert capsys.readouterr() == ("", "")


def test_a_wrong_option_of_a_cell_without_a_body_is_told_all_the_same(shell, lab, capsys):
    assert not shell.run_cell("%%px --ranks 7").success


def test_long_outputs_stand_below_their_label(px):
    assert px("print('a\\nb')\n", "--ranks 2")[0] == "rank 2:\n  a\n  b\n"


@pytest.mark.parametrize(
    ("line", "ranks"), [("--ranks 0,2", [0, 2]), ("--ranks 1-3", [1, 2, 3]), ("-t 1", [1])]
)
def test_some_ranks_only(px, lab, line, ranks):
    lab["touched"] = False
    px("touched = True\n", line)
    assert lab["touched"] == [r in ranks for r in range(4)]


def test_grouping_by_engine_is_ipyparallels_own(px):
    out = px("print('hello')\nrank\n", "--ranks 0-1 --group-outputs engine")[0]
    assert out.count("[output:") == 2
    assert "ranks 0–1" not in out


def test_stderr_stays_stderr(px):
    out, err = px("import sys\nprint('no', file=sys.stderr)\n")
    assert (out, err) == ("", "ranks 0–3: no\n")


def test_warnings_name_the_line_of_the_cell(px, shell):
    err = px("import warnings\nwarnings.warn('careful')\n")[1]
    assert (
        err == f"ranks 0–3: UserWarning (In[{shell.displayhook.prompt_count}], line 3): careful\n"
    )


def test_a_semicolon_silences_the_result(px):
    assert px("rank;\n") == ("", "")
    assert px("rank  # not; this\n", "--ranks 0")[0] == "rank 0: 0\n"


def test_one_traceback_for_equal_errors_pointing_at_the_line(px, shell):
    cell = "def f(x):\n    return x / 0\n\nf(1)\n"
    with pytest.raises(RankError) as caught:
        px(cell)
    assert str(caught.value) == "ranks 0–3: ZeroDivisionError: division by zero"
    (block,) = caught.value.blocks
    text = re.sub(r"\x1b\[[0-9;]*m", "", block)
    # Line numbers count the %%px line, as JupyterLab does.
    count = shell.displayhook.prompt_count
    assert f"In[{count}], line 5\n" in text
    assert "-->   5 f(1)" in text
    assert f"In[{count}], line 3, in f\n" in text
    assert "-->   3     return x / 0" in text


def test_a_cell_has_the_number_that_the_notebook_shows():
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for code in ("import labkit; lab = labkit.start(1)", "1", "%%px\n1 / 0"):
            reply = client.execute_interactive(code, timeout=120, output_hook=lambda m: None)
        content = reply["content"]
        assert content["ename"] == "RankError"
        assert f"In[{content['execution_count']}], line 2" in "".join(content["traceback"])
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.mark.parametrize("how", ["%%px", "lab.run"])
def test_an_interrupt_says_where_it_stopped_the_ranks_and_shows_none_of_our_code(
    px, lab, how, marks, tmp_path
):
    def sleep(folder):
        import os
        import pathlib
        import time

        pathlib.Path(folder, f"{os.getpid()}.mark").touch()
        time.sleep(1000)

    cell = f"{marks.make()}; import time\ntime.sleep(1000)\n"
    with (
        stop_pressed(lambda states: marks.count() == 4),
        pytest.raises(Interrupted) as caught,
    ):
        px(cell) if how == "%%px" else lab.run(sleep, str(tmp_path))
    assert isinstance(caught.value, KeyboardInterrupt)
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(caught.value._render_traceback_()))
    assert text.startswith("Interrupted: the cell was stopped.\nranks 0–3: stopped")
    assert "labkit/" not in text
    if how == "%%px":
        assert "-->   3 time.sleep(1000)" in text
    assert px("1\n")[0] == "ranks 0–3: 1\n"


def test_an_interrupt_in_a_collective_says_what_was_done(px):
    waits = busy_with({0: "waiting", 1: "waiting", 2: "waiting"}, {3: "time.sleep"})
    with stop_pressed(waits), pytest.raises(Interrupted) as caught:
        px("import time\nif rank == 3:\n    time.sleep(1000)\ndist.barrier()\n")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(caught.value._render_traceback_()))
    assert "ranks 0–2: stopped" in text
    assert "-->   5 dist.barrier()" in text
    assert "-->   4     time.sleep(1000)" in text
    assert "labkit freed ranks 0–2 and formed the process group anew" in text
    assert "Connection closed" not in text


def test_different_errors_are_told_apart(px):
    with pytest.raises(RankError) as caught:
        px("if rank:\n    [][rank]\nelse:\n    1 / 0\n")
    lines = str(caught.value).splitlines()
    assert lines == [
        "rank 0: ZeroDivisionError: division by zero",
        "ranks 1–3: IndexError: list index out of range",
    ]


def test_library_frames_are_left_out(px):
    with pytest.raises(RankError) as caught:
        px("torch.nn.Linear(2, 2)(torch.ones(3))\n", "--ranks 0")
    (block,) = caught.value.blocks
    assert "torch/nn/modules" in block
    assert block.count("\n") <= 5


def test_a_peer_that_is_not_there_is_one_sentence_at_the_learners_line(px):
    with pytest.raises(
        RankError, match=r"There is no rank 7 in this group: .* from 0 to 3"
    ) as caught:
        px("dist.send(torch.ones(1), 7)\n", "--ranks 0")
    (block,) = caught.value.blocks
    assert "-->   2 dist.send(torch.ones(1), 7)" in block
    assert "p2p_record.py" not in block


def test_a_syntax_error_reaches_no_rank(px, lab):
    lab["ran"] = 0
    with pytest.raises(CellSyntaxError) as caught:
        px("ran = 1\nx = = 2\n")
    assert "line 3 does not parse (invalid syntax): x = = 2" in str(caught.value)
    assert lab["ran"] == [0] * 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--ranks 9", "There is no rank 9 here: ranks go from 0 to 3."),
        ("--ranks a", "--ranks takes numbers and ranges as in 0,2-3, not 'a'."),
        ("--ranks 3-1", "ranks must name at least one rank"),
        ("-t 77", "There is no engine 77"),
    ],
)
def test_bad_ranks_are_one_sentence(px, line, message):
    with pytest.raises(LabError) as caught:
        px("1\n", line)
    assert message in str(caught.value)
    assert px("1\n")[0] == "ranks 0–3: 1\n"


def test_ranks_and_targets_exclude_each_other(px):
    with pytest.raises(UsageError, match="--ranks or --targets, not both"):
        px("1\n", "--ranks 0 --targets 0")


@pytest.mark.parametrize("text", ["", ",", "1,", "-1", "1--2", "0x1"])
def test_parse_ranks_refuses(text):
    with pytest.raises(LabError, match="--ranks takes"):
        parse_ranks(text)


def test_not_blocking_returns_ipyparallels_result(shell, lab, px):
    shell.run_cell_magic("px", "--noblock -o later", "rank * 2\n")
    shell.user_ns["later"].wait_for_output(HANG_SECONDS)
    results = shell.user_ns["later"].get(HANG_SECONDS)
    assert [r.execute_result["data"]["text/plain"] for r in results] == ["0", "2", "4", "6"]


def test_a_line_has_the_line_numbers_that_the_notebook_shows(shell, lab):
    with pytest.raises(RankError) as caught:
        shell.run_line_magic("px", "1 / 0")
    count = shell.displayhook.prompt_count
    (block,) = caught.value.blocks
    assert f"In[{count}], line 1\n" in re.sub(r"\x1b\[[0-9;]*m", "", block)


def test_line_magic_and_other_cell_magics(shell, px, capsys):
    shell.run_line_magic("px", "mark = rank + 1")
    assert px("mark\n")[0].splitlines()[3] == "rank 3: 4"
    assert "Wall time" in px("%%time\nsum(range(9))\n", "--ranks 1")[0]


def test_a_cell_may_await_something(px):
    """Of itself ipyparallel 9.2 on ipykernel 7 never answers one."""
    assert px("import asyncio\nawait asyncio.sleep(0.1)\nprint('over')\n")[0] == "ranks 0–3: over\n"


def test_shell_commands_and_magics_parse(px):
    assert px("!echo hello\n", "--ranks 1")[0] == "rank 1: hello\n"


def test_a_killed_rank_is_named_while_others_sleep_and_restart_brings_it_back(px, lab):
    cell = "import os, time\nif rank == 1:\n    os.kill(os.getpid(), 9)\ntime.sleep(1000)\n"
    with pytest.raises(RankDied, match=r"rank 1 ended with signal 9 \(SIGKILL\)"):
        px(cell)
    with pytest.raises(RankDied, match=r"lab.restart\(ranks=\[1\]\) replaces it"):
        px("1\n")
    assert lab.status()[1].describe() == "dead: signal 9 (SIGKILL)"
    assert px("1\n", "--ranks 0,2-3")[0] == "ranks 0, 2–3: 1\n"
    lab.restart()
    assert px("rank\n", "--ranks 1")[0] == "rank 1: 1\n"
