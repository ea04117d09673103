"""The code that runs on ranks, in one process here."""

import os
import warnings

import pytest
import torch
import torch.distributed as dist

from labkit.launch import placement
from labkit.rank import activity, calls, control, process_group, setup, tracebacks


def raise_from(code, name="In[7]"):
    """Run code as if it were a cell; return the error."""
    import linecache

    lines = code.splitlines(keepends=True)
    linecache.cache[name] = (len(code), None, lines, name)
    try:
        exec(compile(code, name, "exec"), {"torch": torch})
    except BaseException as error:
        return error
    raise AssertionError("the code did not fail")


def test_format_exception_shows_only_lines_of_cells():
    error = raise_from("#px In[7]\nx = 1\ntorch.nn.Linear(2, 2)(torch.ones(3))\n")
    lines = tracebacks.format_exception(error)
    assert lines[0].startswith("RuntimeError: ")
    assert lines[1] == "  In[7], line 3"
    assert lines[2:4] == ["        2 x = 1", "  -->   3 torch.nn.Linear(2, 2)(torch.ones(3))"]
    assert lines[4].startswith("  raised in torch/nn/modules/linear.py:")
    assert len(lines) == 5


def test_deep_recursion_is_cut_short():
    error = raise_from("#px In[7]\ndef f(n):\n    return f(n + 1)\nf(0)\n")
    lines = tracebacks.format_exception(error)
    assert lines[0].startswith("RecursionError")
    assert len(lines) < 20


def test_a_cause_is_named():
    error = raise_from("try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('k') from e\n")
    assert (
        tracebacks.format_exception(error)[-1] == "  caused by ZeroDivisionError: division by zero"
    )


def test_cpp_stacks_are_cut():
    error = RuntimeError("no good\nException raised from f at x.cpp:1 (most recent call first):\n")
    assert tracebacks.tidy(error) == "no good"


def test_warnings_are_one_line():
    text = tracebacks.format_warning("careful", UserWarning, "In[3]", 4)
    assert text == "UserWarning (In[3], line 4): careful\n"
    import torch.nn.functional as F

    assert tracebacks.format_warning("w", UserWarning, F.__file__, 9) == (
        "UserWarning (torch/nn/functional.py:9): w\n"
    )


def test_call_returns_value_or_error():
    import cloudpickle

    kind, value = calls.call(cloudpickle.dumps((lambda x: x + 1, (1,), {})))
    assert (kind, cloudpickle.loads(value)) == ("ok", 2)
    kind, (name, message, lines) = calls.call(cloudpickle.dumps((lambda: 1 / 0, (), {})))
    assert (kind, name, message) == ("error", "ZeroDivisionError", "division by zero")
    assert lines[0] == "ZeroDivisionError: division by zero"
    assert activity.in_call is False


def test_look_takes_a_thread_for_busy_if_it_runs_code_of_the_users(monkeypatch):
    """As this test is; a rank that waits for a cell has frames of libraries alone."""
    import sys
    import threading

    assert control.look().busy is True
    event = threading.Event()
    waiting = threading.Thread(target=event.wait)
    waiting.start()
    frame = sys._current_frames()[waiting.ident]
    monkeypatch.setattr(control.sampler, "main_frame", lambda: frame)
    assert control.look().busy is False
    event.set()
    waiting.join()


def test_describe_this_process():
    import os
    import socket

    facts = setup.describe()
    assert facts.host == socket.gethostname()
    assert facts.pid == os.getpid()
    assert len(facts.gpus) <= torch.cuda.device_count()
    assert facts.cores >= 1


def test_settings_of_nccl_that_the_user_has_made_stay(monkeypatch):
    monkeypatch.setenv("NCCL_MAX_CTAS", "16")
    monkeypatch.setenv("LOCAL_RANK", "9")
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "")
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE")
    setup.use_environment({"LOCAL_RANK": "1", **placement.SHARING})
    assert os.environ["NCCL_MAX_CTAS"] == "16"
    assert os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert os.environ["LOCAL_RANK"] == "1"


@pytest.fixture
def on_loopback(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
    process_group.loopback_only()
    yield
    process_group.leave()


def test_join_and_leave_and_join_again(on_loopback):
    for _ in range(2):
        port, own_port = process_group.open_store("127.0.0.1", 10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            process_group.join(0, 1, "gloo", "cpu", "127.0.0.1", port, own_port, 10)
        assert os.environ["MASTER_PORT"] == str(own_port) != str(port)
        x = torch.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [1, 1]
        process_group.leave()
        assert not dist.is_initialized()


def test_every_store_gets_a_port_of_its_own(on_loopback):
    first = process_group.open_store("127.0.0.1", 10)
    keep = process_group._store
    second = process_group.open_store("127.0.0.1", 10)
    assert first != second
    assert keep is not process_group._store


def test_our_own_sentences_come_without_our_frames():
    error = raise_from("import labkit\nlabkit.datasets.mnist(size='huge')\n")
    lines = tracebacks.format_exception(error)
    assert lines[0].startswith("UsageError: size must be")
    assert lines[1] == "  In[7], line 2"
    assert not any("raised in" in line for line in lines)
