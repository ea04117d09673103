"""What a notebook shows of an error."""

from IPython.core.interactiveshell import InteractiveShell

from labkit import LabError, RankDied, RankError


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
