"""Values for another process: the same whether they go by file or in the pickle."""

from __future__ import annotations

import gc
import io
import os
import resource
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn

from labkit.wire import packing
from labkit.wire.memory_files import MemoryFile, MemoryFileError, is_reachable
from labkit.wire.packing import Parcel, Pickler, pack, unpack

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")


@pytest.fixture
def file() -> Iterator[MemoryFile]:
    with MemoryFile.create() as file:
        yield file


@pytest.fixture
def all_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LARGE", 0)


def readonly() -> np.ndarray:
    array = np.arange(5)
    array.flags.writeable = False
    return array


def parameter() -> nn.Parameter:
    made = nn.Parameter(torch.ones(3, 2))
    made.note = "own attribute"  # type: ignore[attr-defined]
    return made


def base() -> torch.Tensor:
    return torch.arange(24.0)


VALUES: dict[str, Callable[[], Any]] = {
    "float": base,
    "view": lambda: base()[4:20:3],
    "transposed": lambda: base().view(4, 6).t(),
    "expanded": lambda: torch.ones(1).expand(3, 4),
    "scalar": lambda: torch.tensor(3),
    "zero-size": lambda: torch.empty(0, 3),
    "bool": lambda: torch.tensor([True, False]),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "complex": lambda: torch.tensor([1 + 2j]),
    "conjugated": lambda: torch.tensor([1 + 2j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j]).conj().imag,
    "requires_grad": lambda: torch.ones(2, requires_grad=True),
    "not a leaf": lambda: torch.ones(2, requires_grad=True) * 2,
    "parameter": parameter,
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.ones(3, device="meta"),
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "Fortran order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "strided array": lambda: np.arange(6)[::2],
    "read-only array": readonly,
    "objects": lambda: np.array(["a", None], dtype=object),
    "bytes": lambda: b"some bytes",
    "nested": lambda: {"a": [base(), (base()[2:], "text")], "f": lambda: 3},
}


def facts(value: Any) -> Any:
    """Return all that a value must keep."""
    if isinstance(value, torch.Tensor):
        of = [type(value), value.dtype, value.shape, value.layout, value.device, value.is_leaf,
              value.requires_grad, value.is_conj(), value.is_neg(), vars(value)]  # fmt: skip
        if value.layout is torch.strided and value.device.type != "meta":
            of += [value.stride(), value.storage_offset(), value.untyped_storage().nbytes(),
                   value.untyped_storage().resizable()]  # fmt: skip
        return [*of, repr(value.detach())]
    if isinstance(value, np.ndarray):
        return [value.dtype, value.shape, value.strides, value.flags.writeable, value.tolist()]
    if isinstance(value, dict | list | tuple):
        inner = value.items() if isinstance(value, dict) else value
        return [type(value), [facts(one) for one in inner]]
    return value() if callable(value) else value


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("name", VALUES)
def test_a_value_stays_what_it_is(all_by_file: None, file: MemoryFile, name: str) -> None:
    value = VALUES[name]()
    by_torch = facts(cloudpickle.loads(cloudpickle.dumps(value)))
    by_file, by_pickle = pack(Pickler, value, file), pack(Pickler, value, None)
    assert isinstance(by_file, Parcel)
    assert isinstance(by_pickle, bytes)
    assert facts(unpack(by_file)) == facts(unpack(by_pickle)) == by_torch


def test_what_torch_itself_cannot_unpickle_arrives_too(all_by_file: None, file: MemoryFile) -> None:
    value = torch.ones(3).to(torch.float8_e4m3fn), base().untyped_storage()
    for given in (file, None):
        float8, storage = unpack(pack(Pickler, value, given))
        assert (float8.dtype, float8.float().tolist()) == (torch.float8_e4m3fn, [1] * 3)
        assert list(storage) == list(value[1])


@pytest.mark.parametrize("aside", [True, False])
def test_tensors_that_share_a_storage_go_on_sharing_it(
    all_by_file: None, file: MemoryFile, aside: bool
) -> None:
    base = torch.zeros(4)
    tied = nn.Linear(2, 2)
    one, view, module = unpack(pack(Pickler, (base, base[2:], [tied, tied.weight.data]),
                                    file if aside else None))  # fmt: skip
    view += 1
    assert one.tolist() == [0, 0, 1, 1]
    module[1].fill_(7)
    assert module[0].weight.unique().tolist() == [7]
    assert base.tolist() == [0] * 4


def test_each_who_unpacks_gets_memory_of_its_own(all_by_file: None, file: MemoryFile) -> None:
    packed = pack(Pickler, {"t": torch.zeros(3), "a": np.zeros(3)}, file)
    first, second = unpack(packed), unpack(packed)
    first["t"] += 1
    first["a"] += 1
    file.close()
    assert (second["t"].tolist(), second["a"].tolist()) == ([0] * 3, [0] * 3)


def test_what_is_small_stays_in_the_pickle(file: MemoryFile) -> None:
    large = torch.zeros(packing.LARGE)
    assert isinstance(pack(Pickler, [torch.ones(5), "text"], file), bytes)
    packed = pack(Pickler, [large, torch.ones(5), b"x" * packing.LARGE], file)
    assert isinstance(packed, Parcel)
    assert packed.size() > large.nbytes + packing.LARGE
    assert len(cloudpickle.dumps(packed)) < 1000


def test_nothing_of_what_was_packed_is_kept(all_by_file: None, file: MemoryFile) -> None:
    array = np.zeros(3)
    there = weakref.ref(array)
    gc.disable()
    try:
        pack(Pickler, array, file)
        del array
        assert there() is None
    finally:
        gc.enable()


def test_where_there_is_no_room_all_is_in_the_pickle(file: MemoryFile) -> None:
    value = torch.ones(packing.LARGE)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (packing.LARGE, limits[1]))
    try:
        packed = pack(Pickler, [value, value], file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(packed, bytes)
    assert unpack(packed)[0].equal(value)


def test_a_file_that_is_gone_or_another_is_not_read(all_by_file: None, file: MemoryFile) -> None:
    packed = pack(Pickler, torch.ones(3), file)
    assert is_reachable(file.address)
    assert not is_reachable(replace(file.address, token=b"of another host."))
    read_end, write_end = os.pipe()
    assert not is_reachable(replace(file.address, fd=read_end))
    os.close(read_end)
    os.close(write_end)
    file.close()
    assert not is_reachable(file.address)
    assert not is_reachable(None)
    with pytest.raises(MemoryFileError):
        unpack(packed)


def test_a_file_that_is_cut_is_an_error_and_no_crash(all_by_file: None, file: MemoryFile) -> None:
    packed = pack(Pickler, torch.ones(1000), file)
    os.truncate(f"/proc/self/fd/{file.address.fd}", 100)
    with pytest.raises(MemoryFileError, match="ends early"):
        unpack(packed)


def test_it_counts_what_it_copies(all_by_file: None, file: MemoryFile) -> None:
    sent: list[int] = []
    received: list[int] = []
    file.on_chunk = sent.append
    packed = pack(Pickler, torch.ones(1000), file)
    assert isinstance(packed, Parcel)
    unpack(packed, received.append)
    assert sum(sent) == sum(received) == packed.size()


def test_an_error_of_the_value_is_no_lack_of_room(file: MemoryFile) -> None:
    class Odd:
        def __reduce__(self) -> str:
            raise OSError("of its own")

    with pytest.raises(OSError, match="of its own"):
        Pickler(io.BytesIO(), file).dump(Odd())
    with pytest.raises(OSError, match="of its own"):
        pack(Pickler, Odd(), file)
