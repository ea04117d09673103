"""What torchrun's workers leave in files, by rank, and the error that comes of their ends."""

from __future__ import annotations

import argparse
import json

import pytest

from labkit.base.errors import RankDied
from labkit.launch.torchrun import Report
from labkit.runtime.torchrun import File, Raised, Workers, find_failed, judge, refusal_reason
from labkit.wire.state import Outcome

BAD = Raised("ValueError", "bad", "Traceback …\nValueError: bad\n")
GONE = Raised("RuntimeError", "Connection closed by peer", "Connection closed by peer\n")


def write(folder, name, text, *, rank=0, attempt=0):
    """Write what a worker would."""
    place = folder / "logs" / "id_x" / f"attempt_{attempt}" / str(rank)
    place.mkdir(parents=True, exist_ok=True)
    with open(place / name, "a") as file:
        file.write(text)


def raised(folder, error, **place):
    write(folder, "raised.json", json.dumps(vars(error)), **place)


def test_a_file_is_read_as_it_grows_and_letters_are_not_cut(tmp_path):
    path = tmp_path / "x"
    file = File(path)
    assert file.more() == ""
    path.write_bytes("aä".encode()[:2])
    assert file.more() == "a"
    path.write_bytes("aäb".encode())
    assert file.more() == "äb"
    assert file.more() == ""


def test_texts_are_by_rank_and_grow(tmp_path):
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    assert workers.texts() == ({}, {})
    write(tmp_path, "stdout.log", "one\n")
    write(tmp_path, "stderr.log", "warned", rank=1)
    workers.read()
    write(tmp_path, "stdout.log", "two\n")
    workers.read()
    assert workers.texts() == ({0: "one\ntwo\n", 1: ""}, {0: "", 1: "warned"})


def test_a_worker_says_which_rank_it_is(tmp_path):
    write(tmp_path, "stdout.log", "x")
    write(tmp_path, "rank", "5")
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    assert workers.texts()[0] == {5: "x"}


def test_attempts_follow_one_another(tmp_path):
    for attempt in (10, 9):
        write(tmp_path, "stdout.log", f"{attempt}\n", attempt=attempt)
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    assert workers.texts()[0] == {0: "9\n10\n"}


def test_the_cell_has_its_name_and_not_its_files(tmp_path):
    text = f'File "{tmp_path}/cell.py", line 3'
    write(tmp_path, "stderr.log", text)
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    assert workers.texts()[1] == {0: 'File "In[7]", line 3'}


def test_tracebacks_are_shown_behind_what_was_printed_and_consequences_are_not(
    tmp_path,
):
    write(tmp_path, "stderr.log", "warned\n", rank=1)
    write(tmp_path, "stdout.log", "")
    raised(tmp_path, BAD, rank=1)
    raised(tmp_path, GONE, rank=0)
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    assert workers.last_errors() == {0: GONE, 1: BAD}
    assert [o.stderr for o in workers.outcomes([1])] == ["", "warned\n" + BAD.text]
    assert [o.stderr for o in workers.outcomes([0, 1])] == [GONE.text, "warned\n" + BAD.text]


def test_the_error_of_an_earlier_attempt_is_shown_once(tmp_path):
    raised(tmp_path, BAD)
    raised(tmp_path, GONE, rank=1)
    write(tmp_path, "stdout.log", "done", attempt=1)
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    assert workers.last_errors() == {}
    assert [(o.stdout, o.stderr) for o in workers.outcomes([])] == [("done", BAD.text), ("", "")]


@pytest.mark.parametrize(
    ("failures", "errors", "failed"),
    [
        ({}, {}, []),
        ({1: 1}, {1: BAD}, [1]),
        ({0: 1, 1: 1}, {0: GONE, 1: BAD}, [1]),
        ({0: -15, 1: -9}, {}, [1]),
        ({0: 1, 1: 3}, {0: GONE}, [1]),
        ({0: -15, 1: 1}, {1: GONE}, [0, 1]),  # nobody else
        ({0: -15}, {}, [0]),
    ],
)
def test_who_failed_by_itself(failures, errors, failed):
    assert sorted(find_failed(failures, errors, [])) == failed


def test_who_failed_because_another_had_ended_well():
    assert find_failed({0: 1, 1: -15}, {0: GONE}, [2]) == {0: 1}
    error = judge({0: 1}, {0: GONE}, [1, 2])
    assert str(error).splitlines() == [
        "rank 0 ended with exit code 1 (RuntimeError: Connection closed by peer).",
        "Cause: ranks 1–2 had ended their script before. Every rank of a group has to make the",
        "same calls.",
    ]
    assert "Cause" not in str(judge({0: 1}, {0: BAD}, [1, 2]))


def test_ports_are_left_out():
    text = "Connection closed by peer [127.0.0.1]:13961. See [::1]:5"
    assert Raised("RuntimeError", text, text).message == (
        "Connection closed by peer [127.0.0.1]. See [::1]"
    )


def test_the_error_names_ranks_and_exit_codes():
    assert judge({}, {}, []) is None
    error = judge({0: 1, 1: 1, 2: -9}, {0: BAD, 1: BAD}, [3])
    assert isinstance(error, RankDied)
    assert str(error) == (
        "ranks 0–1 ended with exit code 1 (ValueError: bad); rank 2 ended with signal 9 (SIGKILL)."
    )
    assert "\n" not in "".join(error.blocks)


@pytest.mark.parametrize("arguments", [["--local_rank"], ["--data", "--local-rank", "--lr"]])
def test_a_script_of_the_old_launcher_is_told_where_its_rank_is(arguments, capsys):
    parser = argparse.ArgumentParser("train.py")
    for argument in arguments:
        parser.add_argument(argument, required=True)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    outcomes = [Outcome(rank, "", capsys.readouterr().err) for rank in range(2)]
    assert str(judge({0: 2, 1: 2}, {}, [], outcomes)).splitlines() == [
        "ranks 0–1 ended with exit code 2.",
        "torchrun gives a process its local rank in its environment, not as an argument:",
        'local_rank = int(os.environ["LOCAL_RANK"]).',
    ]
    others = [Outcome(0, "", "train.py: error: the following arguments are required: --data\n")]
    assert "LOCAL_RANK" not in str(judge({0: 2}, {}, [], others))


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (Report(), ""),
        (Report(failures={1: 1}, code=1), ""),
        (Report(refused="Cuda is not available.", code=2),
         "torchrun cannot run this: Cuda is not available."),
        (Report(code=-9), "torchrun ended with signal 9 (SIGKILL)."),
        (Report(code=1, error="Traceback\ntorch.x.RendezvousError: no way"),
         "torchrun ended with exit code 1: RendezvousError: no way"),
    ],
)  # fmt: skip
def test_why_torchrun_did_not_run(report, sentence):
    assert refusal_reason(report) == sentence


def test_the_stack_below_a_line_of_torchs_log_is_left_out(tmp_path):
    """What else looks a little like one stays."""
    line = "[W1126 23:16:25.9 socket.cpp:767] [c10d] The client socket has failed to connect"
    stack = "Exception raised from recv at x.cpp:1:\nframe #0: c10::Error + 0x1 (0x7f in lib)\n"
    write(tmp_path, "stderr.log", f"{line}\n{stack}frame #1: <unknown>\nmine: frame #2: in\n")
    write(tmp_path, "stdout.log", "frame #0: a picture\n")
    workers = Workers(tmp_path, "In[7]")
    workers.read()
    (outcome,) = workers.outcomes([])
    assert outcome.stderr == f"{line}\nmine: frame #2: in\n"
    assert outcome.stdout == "frame #0: a picture\n"
