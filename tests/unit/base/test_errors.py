"""What a notebook shows of an error."""

import inspect
import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import Deadlock, LabError, RankDied, RankError, UsageError
from labkit.base import errors


def test_a_notebook_shows_the_sentence_and_no_frames(capsys):
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.user_ns["LabError"] = LabError
    shell.run_cell("raise LabError('Ranks go from 0 to 3.')")
    out, err = capsys.readouterr()
    assert "Ranks go from 0 to 3." in out + err
    assert "Traceback" not in out + err
    assert "line 1" not in out + err


def test_rank_errors_show_their_blocks():
    error = RankError("rank 2: ValueError: no", ["rank 2: ValueError: no\n  In[1], line 2"])
    assert str(error) == "rank 2: ValueError: no"
    assert error._render_traceback_() == error.blocks
    assert isinstance(error, LabError)
    assert issubclass(RankDied, RankError)


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    """Each line names a class, and the class above it in the picture is its base."""
    drawn, above = {}, []
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip("│├└─ ").split(" ")[0]
        if not isinstance(getattr(errors, name, None), type):
            continue
        depth = (len(line) - len(line.lstrip("│├└─ ")) - 4) // 4
        above[depth:] = [name]
        drawn[name] = above[depth - 1] if depth else None
    classes = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert set(drawn) == set(classes)
    for name, base in drawn.items():
        assert classes[name].__bases__[0].__name__ == (
            base or {"LabError": "Exception", "Interrupted": "KeyboardInterrupt"}[name]
        )


@pytest.mark.parametrize(
    "wrong_use",
    [
        lambda: labkit.start(0),
        lambda: labkit.check("7"),
        lambda: labkit.datasets.mnist(size="huge"),
        lambda: labkit.hosts.network(0),
        lambda: labkit.figures.before_after([1], [1, 2]),
        lambda: labkit.figures.bandwidth([1, 2], [1.0, 2.0], world_size=1),
    ],
)
def test_wrong_use_is_one_kind_everywhere_and_a_value_error(wrong_use):
    with pytest.raises(ValueError, match=r"^\S.*\S$") as caught:
        wrong_use()
    assert type(caught.value) is UsageError
    assert isinstance(caught.value, LabError)
    assert caught.value._render_traceback_() == [f"\x1b[31mUsageError\x1b[0m: {caught.value}"]


def test_a_deadlock_shows_waits_as_they_are_and_wraps_sentences():
    wait = "  rank 0 waits in " + "a very long call " * 6
    cause = "labkit has nothing to do with it. " + "Every rank has to make the same calls. " * 3
    done = ["labkit freed rank 0.", "rank 1 did not return from the cell."]
    error = Deadlock("rank 0 waits for rank 1.", [wait], cause, done)
    assert str(error) == "\n".join(
        ["rank 0 waits for rank 1.", wait, f"Cause: {cause}", "labkit freed rank 0.", done[1]]
    )
    (block,) = error.blocks
    lines = re.sub(r"\x1b\[[0-9;]*m", "", block).split("\n")
    assert lines[:2] == ["Deadlock: rank 0 waits for rank 1.", wait]
    assert lines[2].startswith("Cause: labkit has nothing to do with it. Every")
    assert all(len(line) <= 88 for line in lines[2:])
    assert lines[-3:] == ["", *done]  # what labkit did is not part of the cause
    assert "\x1b[1mCause:\x1b[0m" in block


def test_a_deadlock_after_which_nothing_was_done_ends_with_its_cause():
    assert Deadlock("They wait.", [], "Nobody sends.").blocks[0].endswith(" Nobody sends.")
