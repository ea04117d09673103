"""A tensor on the rank's own GPU looks as one on the CPU; fake and meta tensors stand for it."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import _tensor_str, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit.rank.torch_internals import names, reprs

OWN, OTHER = torch.device("cuda", 1), torch.device("cuda", 0)
META = torch.device("meta")


class Subclass(torch.Tensor):
    """What a library may make of a tensor."""


@pytest.fixture(autouse=True)
def original(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Begin and end each test with torch's own texts."""
    monkeypatch.setattr(reprs, "_original", None)
    monkeypatch.setattr(reprs, "_own", torch.device("cpu"))
    monkeypatch.setattr(_tensor_str, "_add_suffixes", _tensor_str._add_suffixes)
    for module in reprs.LISTS:
        monkeypatch.setattr(module, "extra_repr", module.extra_repr)
    yield monkeypatch
    monkeypatch.undo()
    names._missing.cache_clear()


def empty(device: torch.device, *shape: int, **options: object) -> torch.Tensor:
    return torch.empty(shape or (3,), device=device, **options)  # type: ignore[call-overload]


def long(device: torch.device) -> str:
    """Write so many values that the device decides where a line ends."""
    contents = "[" + ", ".join(["1.0000"] * 8) + "]"
    return empty(device, dtype=torch.half).__repr__(tensor_contents=contents)


TEXTS: dict[str, Callable[[torch.device], str]] = {
    "repr": lambda d: repr(empty(d)),
    "str": lambda d: str(empty(d)),
    "f-string": lambda d: f"{empty(d)} {empty(d, 1)!r}",
    "long": long,
    "scalar": lambda d: repr(empty(d, 1).sum()),
    "whole numbers": lambda d: repr(empty(d, 2, 2, dtype=torch.int8)),
    "requires grad": lambda d: repr(empty(d, requires_grad=True)),
    "grad_fn": lambda d: repr(empty(d, requires_grad=True) * 2),
    "complex": lambda d: repr(empty(d, dtype=torch.cfloat)),
    "containers": lambda d: repr(OrderedDict(a=[empty(d)], b=(empty(d), {"c": empty(d)}))),
    "what max gives": lambda d: repr(empty(d, 2, 2).max(dim=0)),
    "parameter": lambda d: repr(nn.Parameter(empty(d))),
    "state dict": lambda d: repr(nn.Linear(2, 2, device=d).state_dict()),
    "ParameterList": lambda d: repr(nn.ParameterList([empty(d), empty(d, 2, 2)])),
    "ParameterDict": lambda d: repr(nn.ParameterDict({"a": empty(d), "(cuda:1)]": empty(d)})),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_ranks_own_device_is_left_out_and_others_are_not(kind: str) -> None:
    text = TEXTS[kind]
    with FakeTensorMode():
        on_cpu, on_own, on_other = text(torch.device("cpu")), text(OWN), text(OTHER)
        assert on_own != on_cpu
        reprs.install(OWN)
        assert text(OWN) == text(torch.device("cpu")) == on_cpu
        assert text(OTHER) == on_other != on_cpu


def test_several_devices_in_one_text_are_told_apart() -> None:
    reprs.install(OWN)
    with FakeTensorMode():
        assert f"{[empty(OWN), empty(OTHER)]}" == (
            "[FakeTensor(..., size=(3,)), FakeTensor(..., device='cuda:0', size=(3,))]"
        )


# torch 2.11 says so even to who opts out.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_the_meta_device_is_one_like_others() -> None:
    x = empty(META)
    assert repr(x) == "tensor(..., device='meta', size=(3,))"
    reprs.install(OWN)
    assert repr(x) == "tensor(..., device='meta', size=(3,))"
    reprs.install(META)
    assert repr(x) == "tensor(..., size=(3,))"
    places, values = empty(META, 1, 2, dtype=torch.long), empty(META, 2)
    sparse = torch.sparse_coo_tensor(places, values, (3,), check_invariants=False)
    assert repr(sparse) == (
        "tensor(indices=tensor(..., size=(1, 2)),\n       values=tensor(..., size=(2,)),\n"
        "       size=(3,), layout=torch.sparse_coo)"
    )


def test_subclasses_are_tensors_too() -> None:
    reprs.install(META)
    x = empty(META).as_subclass(Subclass)
    assert repr(x) == "Subclass(..., size=(3,))"
    assert repr(nn.Parameter(x)) == "Parameter(Subclass(..., size=(3,), requires_grad=True))"
    assert f"{nn.Parameter(empty(META))}" == (
        "Parameter containing:\ntensor(..., size=(3,), requires_grad=True)"
    )


def test_a_value_that_reads_like_a_device_stays() -> None:
    reprs.install(OWN)
    assert repr(["device='cuda:1'", OWN]) == ("[\"device='cuda:1'\", device(type='cuda', index=1)]")


@pytest.mark.parametrize("own", [torch.device("cpu"), torch.device("cpu", 0)])
def test_on_a_cpu_nothing_of_torch_is_touched(own: torch.device) -> None:
    before = (_tensor_str._add_suffixes, *(module.extra_repr for module in reprs.LISTS))
    reprs.install(own)
    assert before == (_tensor_str._add_suffixes, *(module.extra_repr for module in reprs.LISTS))


def test_a_second_call_is_for_the_new_device_alone() -> None:
    for own in (OTHER, OWN, OWN):
        reprs.install(own)
    with FakeTensorMode():
        assert repr(empty(OWN)) == "FakeTensor(..., size=(3,))"
        assert repr(empty(OTHER)) == "FakeTensor(..., device='cuda:0', size=(3,))"


def test_what_is_no_text_of_a_tensor_stays() -> None:
    def kept(value: object) -> tuple[bytes, bytes]:
        saved = io.BytesIO()
        torch.save(value, saved)
        return saved.getvalue(), pickle.dumps(value)

    held = {"x": empty(META), "p": nn.ParameterList([empty(META)]), "y": torch.ones(2)}
    before = kept(held)
    reprs.install(META)
    assert kept(held) == before
    assert copy.deepcopy(held)["x"].device == META
    assert pickle.loads(before[1])["x"].device == META
    assert torch.load(io.BytesIO(before[0]), weights_only=False)["x"].device == META
    assert torch.empty(1).device == torch.get_default_device() == torch.device("cpu")
    assert f"{torch.tensor(1.25):.1f} {torch.tensor(7):03d}" == "1.2 007"


def test_a_torch_without_the_name_keeps_its_texts(original: pytest.MonkeyPatch) -> None:
    original.delattr(_tensor_str, "_add_suffixes")
    names._missing.cache_clear()
    reprs.install(META)
    assert not hasattr(_tensor_str, "_add_suffixes")
    (missing,) = names.check()
    assert str(missing).endswith(
        " hides _tensor_str._add_suffixes: each rank shows its tensors on a GPU with their "
        "device, equal ones too."
    )
