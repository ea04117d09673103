"""Pickle values for the notebook's kernel, and say of those that cannot leave a rank what can."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..wire import packing
from ..wire.memory_files import Address, MemoryFile, MemoryFileError

#: Class -> what an object of it is, and how to get what is wanted of one with some name.
_KINDS = {
    "DistributedDataParallel": (
        "a DDP model, whose process group is there",
        "%px sd = {name}.module.state_dict(), then lab['sd']",
    ),
    "FullyShardedDataParallel": (
        "an FSDP model, of which each rank has a part",
        "%px sd = {name}.state_dict(), then lab['sd']",
    ),
    "FSDPModule": (
        "an FSDP model, of which each rank has a part",
        "%px sd = {{k: v.full_tensor() for k, v in {name}.state_dict().items()}}, then lab['sd']",
    ),
    "ProcessGroup": (
        "a process group, which exists between its ranks only",
        "%px members = dist.get_process_group_ranks({name}), then lab['members']",
    ),
    "Work": (
        "the Work of a call that its rank has made",
        "%px {name}.wait(), then the tensor of that call",
    ),
    "Store": (
        "a store, which is a connection of its rank",
        "%px value = {name}.get('key'), then lab['value']",
    ),
    "generator": ("a generator", "%px items = list({name}), then lab['items']"),
}


#: Attribute of an error: of which kind the value is that it is about, and the value.
_STAYS = "labkit_stays"


class _Pickler(packing.Pickler):
    """Pickle for the notebook's kernel: tensors arrive there on the CPU."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            here = obj.cpu()
            reduced = packing.reduce_tensor(here)
            return here.__reduce_ex__(self.proto) if reduced is NotImplemented else reduced
        if kind := _kind(type(obj)):
            error = TypeError(f"cannot pickle {type(obj).__name__!r} object")  # as Python says it
            setattr(error, _STAYS, (kind, obj))
            raise error
        return super().reducer_override(obj)

    proto = pickle.HIGHEST_PROTOCOL


def _kind(of: type) -> str:
    """Return the kind of what stays on its rank, "" for what does not."""
    if (found := _known.get(of)) is None:
        found = "generator" if issubclass(of, GeneratorType) else ""
        for known in of.__mro__:
            if known.__name__ in _KINDS and known.__module__.partition(".")[0] == "torch":
                found = known.__name__
                break
        _known[of] = found
    return found


#: Class -> its kind.
_known: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def dump(value: Any, file: Address | None = None) -> packing.Packed:
    """Pickle a value for the notebook, which has opened ``file`` for what is large of it.

    Raises
    ------
    TypeError
        If it is, or has, something that exists on its rank only; ``explain`` says what.
    Exception
        Whatever else pickle or the value's own class raises.
    """
    try:
        with nullcontext() if file is None else MemoryFile.open(file) as opened:
            return packing.pack(_Pickler, value, opened)
    except MemoryFileError:  # no descriptor is left, say
        return packing.pack(_Pickler, value, None)


def explain(error: Exception, value: object, name: str = "") -> str:
    """Return why a value cannot leave its rank, and what can.

    ``name`` is that of the variable; without one it is the result of a function.
    """
    whole = name or "The result"
    part = "%px part = …, then lab['part']" if name else "return that"
    kind, stays = getattr(error, _STAYS, ("", None))
    if not kind:
        why = (str(error) or type(error).__name__).rstrip(".")
        return f"{whole} cannot leave its ranks ({why}). Take what you need of it: {part}."
    what, way = _KINDS[kind]
    if stays is not value:
        return f"{whole} cannot leave its ranks: in it is {what}. Take what you need of it: {part}."
    way = way.format(name=name) if name else part
    return f"{whole} cannot leave its ranks: it is {what}. Take what you need of it: {way}."
