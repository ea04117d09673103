"""Remote calls on ranks, and what a start that fails says."""

import subprocess
import sys

import pytest

import labkit
from labkit import LabError
from labkit.base import times
from labkit.launch import ipp_launchers, launcher
from labkit.wire import remote_calls
from tests.conftest import descendants
from tests.support.cells import inside
from tests.support.events import HANG_SECONDS


def test_remote_calls_are_answered_in_the_order_asked(lab4):
    pids = [state.pid for state in lab4.status()]
    backwards = dict.fromkeys(reversed(lab4.engine_ids), remote_calls.describe())
    assert [facts.pid for facts in inside(lab4).cluster.remote_call(backwards)] == pids[::-1]


def test_each_engine_may_have_a_remote_call_of_its_own(lab4):
    calls = map(remote_calls.prepare_trial, ["rank", "world_size", "no_such_name", "device"])
    asked = dict(zip(lab4.engine_ids, calls, strict=True))
    no = "no function"
    assert inside(lab4).cluster.remote_call(asked) == [no, no, "missing", no]


def test_a_remote_call_that_a_rank_does_not_know_is_an_error_that_says_so(lab4):
    newer = remote_calls.Call("from_the_future", (), {})
    with pytest.raises(
        LabError, match=r"^rank 1: LookupError: no remote call 'from_the_future' here"
    ):
        inside(lab4).cluster.remote_call({lab4.engine_ids[1]: newer})


def test_a_remote_call_on_a_busy_rank_has_a_bound(lab4, monkeypatch, gate):
    monkeypatch.setattr(times, "REMOTE_CALL", 0.5)
    view = lab4.client.direct_view(lab4.engine_ids[1])
    busy = view.execute(gate.wait, block=False)
    with pytest.raises(LabError, match=r"rank 1 does not answer: it is busy or blocked; lab.rest"):
        inside(lab4).cluster.remote_call(dict.fromkeys(lab4.engine_ids, remote_calls.describe()))
    gate.open()
    busy.get(HANG_SECONDS)


def test_gpus_are_counted_in_a_child(lab4, monkeypatch):
    import torch

    monkeypatch.setattr(launcher, "has_gpu", lambda: True)
    assert inside(lab4).cluster.launcher.count_gpus() == torch.cuda.device_count()


def test_a_rank_that_dies_at_start_up_is_named_with_its_log(monkeypatch):
    start_one = ipp_launchers.LabkitEngineSetLauncher.start_one

    def broken(self, index, *extra):
        start_one(self, index, *extra, *(["--no-such-option=1"] if index == 1 else []))

    monkeypatch.setattr(ipp_launchers.LabkitEngineSetLauncher, "start_one", broken)
    with pytest.raises(LabError, match=r"Rank 1 ended at start-up .*; its log ends:"):
        labkit.start(2)
    assert descendants() == []


def test_the_controller_is_forked_once_before_ipyparallel_is_imported():
    code = (
        "import sys, labkit\n"
        "from labkit.launch.warm_process import WarmProcess\n"
        "fork = WarmProcess.fork\n"
        "def told(self, name, kind, *args):\n"
        "    if kind == 'controller':\n"
        "        print('ipyparallel' in sys.modules)\n"
        "    return fork(self, name, kind, *args)\n"
        "WarmProcess.fork = told\n"
        "with labkit.start(1):\n"
        "    pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr
