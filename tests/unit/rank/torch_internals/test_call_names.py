"""A call is named as its author knows it, not by torch's inside."""

from __future__ import annotations

import contextlib
import linecache
import sys
import textwrap
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from labkit.rank.torch_internals import call_names, frames

#: Stands for functions of torch: each calls the next with what it was given.
INSIDE = """
def {name}(then, *args, **named):
    return then()
"""
OURS = "/labkit/ours.py"


def torch_function(name: str, file: str = "distributed/checkpoint/saver.py") -> Any:
    """Return a function of torch's by its name; one with ``<locals>`` has it from a decorator."""
    names: dict[str, Any] = {}
    exec(compile(INSIDE.format(name=name.rpartition(".")[2]), frames.path(file), "exec"), names)
    made = names[name.rpartition(".")[2]]
    made.__code__ = made.__code__.replace(co_qualname=name)
    return made


def named(code: str, *, reducing: bool = False, **names: Any) -> str:
    """Run the code of a cell; return how its call is named that calls ``here`` in the end."""
    found: list[str] = []

    def here() -> None:
        inside = list(_frames(sys._getframe(1)))
        found.append(call_names.name_call(inside, (OURS,), reducing=reducing))

    code = textwrap.dedent(code).strip() + "\n"
    linecache.cache["In[3]"] = (len(code), None, code.splitlines(keepends=True), "In[3]")
    exec(compile(code, "In[3]", "exec"), {"here": here, **names})
    return found[0]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Namespace:
    def __init__(self, **names: Any) -> None:
        vars(self).update(names)


def test_a_function_of_torch_has_its_name():
    save = torch_function("get_model_state_dict")
    assert named("save(here)", save=save) == "get_model_state_dict"


@pytest.mark.parametrize("inner", ["_api_bc_check.<locals>.inner_func", "wrapper", "_impl"])
def test_a_decorated_function_has_the_words_of_the_line(inner):
    dcp = Namespace(save=torch_function(inner))
    long = "a" * 30
    code = f"dcp.save(here, checkpoint_id='{long}')"
    assert named(code, dcp=dcp) == "dcp.save"
    assert named("dcp.save(here)", dcp=dcp) == "dcp.save(here)"


def test_a_decorated_collective_has_its_name():
    inner = torch_function("all_gather", "distributed/distributed_c10d.py")
    outer = torch_function("wrapper", "distributed/c10d_logger.py")
    assert named("calls(here)", calls=_chain(outer, inner)) == "all_gather"


def test_what_stands_between_torch_and_torch_is_passed_over():
    """``FSDP.state_dict`` enters a context manager, whose frame is of Python's library."""
    inner = torch_function("_unshard_fsdp_state_params", "distributed/fsdp/_unshard.py")
    outer = torch_function("Module.state_dict", "nn/modules/module.py")
    between = torch_function("__enter__")
    between.__code__ = between.__code__.replace(co_filename=contextlib.__file__)
    f = Namespace(state_dict=_chain(outer, between, inner))
    assert named("f.state_dict(here)", f=f) == "f.state_dict(here)"


class Waits(torch.nn.Module):
    def forward(self, then: Any) -> Any:
        return then()


def forward_of_torch(module: torch.nn.Module) -> torch.nn.Module:
    """Let a module's forward be one of torch's files."""
    code = type(module).forward.__code__
    file = frames.path("nn/modules/container.py")
    type(module).forward.__code__ = code.replace(co_filename=file)
    return module


def test_the_call_of_a_module_has_the_words_of_the_line():
    model = forward_of_torch(Waits())
    assert named("model(here)", model=model) == "model(here)"
    assert named("x = 1\nmodel.forward_all = model\nmodel(here) is None", model=model) == (
        "model(here)"
    )


class Parallel(torch.nn.parallel.DistributedDataParallel):
    """A DDP model without a group."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def forward(self, then: Any) -> Any:
        return then()


@pytest.mark.parametrize(
    ("code", "evaluates"),
    [
        ("model(here)", False),
        ("for i in range(1):\n    model(here)", False),
        ("model.eval()\nmodel(here)", True),
        ("with torch.no_grad():\n    model(here)", True),
        ("with torch.inference_mode():\n    if True:\n        model(here)", True),
        ("with torch.no_grad():\n    1\nmodel(here)", False),
        ("@torch.no_grad()\ndef score(): model(here)\nscore()", True),
        ("def run(): model(here)\nwith torch.no_grad():\n    run()", True),
        ("with torch.autocast('cpu'):\n    model(here)", False),
    ],
)
def test_an_evaluation_of_a_ddp_model_is_known(code, evaluates):
    model = forward_of_torch(Parallel())
    ends = " in evaluation" * evaluates
    assert named(code, model=model, torch=torch) == f"DistributedDataParallel.forward{ends}"


def test_a_backward_is_of_ddp_where_its_reducer_waits_in_it():
    engine = torch_function("_engine_run_backward", "autograd/graph.py")
    outer = torch_function("Tensor.backward", "_tensor.py")
    gathers = torch_function("unshard", "distributed/fsdp/_fsdp_param_group.py")
    hook = torch_function("fp16_hook", "distributed/algorithms/ddp_comm_hooks/default_hooks.py")
    reduces = {"backward": [], "backward()": [gathers], "hook": [hook]}
    for name, inside in reduces.items():
        calls = _chain(outer, engine, *inside)
        expected = "backward" if name == "hook" else name
        assert named("calls(here)", calls=calls, reducing=True) == expected
        assert named("calls(here)", calls=calls, reducing=False) == "backward()"


def _chain(*functions: Any) -> Any:
    """Return a function that calls each of these within the one before."""
    first, *rest = functions
    if not rest:
        return first
    following = _chain(*rest)
    relay = compile(
        "def _relay(): return following(then)", functions[0].__code__.co_filename, "exec"
    )

    def call(then: Any) -> Any:
        names = {"following": following, "then": then}
        exec(relay, names)
        return first(names["_relay"])

    code = call.__code__.replace(co_filename="<frozen of the test>")
    call.__code__ = code
    return call


def test_a_thread_of_torch_is_named_by_its_public_function():
    outer = torch_function("save_wrapper", "distributed/checkpoint/_async_thread_executor.py")
    inner = torch_function("save", "distributed/checkpoint/state_dict_saver.py")
    found: list[str] = []

    def here() -> None:
        within = [f for f in _frames(sys._getframe(1)) if frames.is_torch(f)]
        found.append(call_names.name_call(within, (OURS,), reducing=False))

    _chain(outer, inner)(here)
    assert found == ["save"]


def test_a_thread_that_waits_for_nothing_of_torch_waits():
    assert named("here()") == "wait"


def test_an_operator_of_a_tensor_is_named_by_its_class():
    dispatch = torch_function("AsyncCollectiveTensor.__torch_dispatch__", "distributed/_f.py")
    assert named("dispatch(here)", dispatch=dispatch) == "AsyncCollectiveTensor"
