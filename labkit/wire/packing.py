"""Pickle values for another process, with what is large beside the pickle, in a file in memory.

What is large are buffers: the storages of tensors, arrays of NumPy, whatever hands out its memory
by pickle's protocol 5 (PEP 574). Each is copied twice, into the file and out of it, and is then
ordinary memory: what one rank changes in place changes nothing elsewhere. A mapping of the file
(copy on write) would save the second copy, but torch could not resize such a storage, and a small
tensor would keep the whole file alive.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

from .memory_files import Address, MemoryFile, MemoryFileError, Piece

if TYPE_CHECKING:
    import torch

#: A buffer of so many bytes goes into the file (docs/BENCHMARKS.md, ``values``). Below, the way
#: through the controller takes no longer.
LARGE = 1 << 20


@dataclass(frozen=True)
class Buffer:
    """A buffer of a value, in the file."""

    piece: Piece
    readonly: bool
    storage: bool  #: of a tensor


@dataclass(frozen=True)
class Parcel:
    """A pickled value of which a part lies in a file."""

    pickled: bytes | Piece
    buffers: tuple[Buffer, ...]
    file: Address

    def size(self) -> int:
        """Return how many bytes lie in the file."""
        pieces = [buffer.piece for buffer in self.buffers]
        if isinstance(self.pickled, Piece):
            pieces.append(self.pickled)
        return sum(piece.size for piece in pieces)


#: A pickled value: all of it, or the parcel that has the rest.
Packed = bytes | Parcel


class Pickler(cloudpickle.Pickler):
    """Pickle by value as cloudpickle does, with tensors' storages and large buffers apart.

    ``file`` is where they go; None: nowhere, they stay in the pickle.
    """

    def __init__(self, stream: io.BytesIO, file: MemoryFile | None) -> None:
        self.apart = _Apart(file)
        # No method of this object's: the circle would keep all that was pickled until Python
        # looks for circles.
        put = None if file is None else self.apart.put
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=put)

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None:
            if isinstance(obj, torch.Tensor):
                return reduce_tensor(obj)
            if isinstance(obj, torch.UntypedStorage) and obj.device.type == "cpu":
                self.apart.storage = pickle.PickleBuffer(_memory(obj))
                return _load_storage, (self.apart.storage,)
        return super().reducer_override(obj)


class _Apart:
    """Takes the buffers of a value."""

    def __init__(self, file: MemoryFile | None) -> None:
        self._file = file
        self.buffers: list[Buffer] = []
        self.storage: pickle.PickleBuffer | None = None  #: the newest one of a tensor

    def put(self, buffer: pickle.PickleBuffer) -> bool:
        """Write a buffer to the file; return whether it stays in the pickle instead."""
        assert self._file is not None
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < LARGE:
            return True
        piece = self._file.write(view)
        self.buffers.append(Buffer(piece, view.readonly, buffer is self.storage))
        return False


def pack(make: type[Pickler], value: Any, file: MemoryFile | None) -> Packed:
    """Pickle a value, with what is large of it in a file.

    Where the file has no room, all of it is in the pickle, as without one.
    """
    stream = io.BytesIO()
    pickler = make(stream, file)
    try:
        pickler.dump(value)
        if file is None or (not pickler.apart.buffers and stream.tell() < LARGE):
            return stream.getvalue()
        if stream.tell() < LARGE:
            return Parcel(stream.getvalue(), tuple(pickler.apart.buffers), file.address)
        with stream.getbuffer() as view:
            return Parcel(file.write(view), tuple(pickler.apart.buffers), file.address)
    except MemoryFileError:
        return pack(make, value, None)


def unpack(packed: Packed, on_chunk: Callable[[int], None] | None = None) -> Any:
    """Return the value of a pickle.

    ``on_chunk`` is called with the number of bytes of each chunk that was read from its file.

    MemoryFileError: if that file is gone.
    """
    if not isinstance(packed, Parcel):
        return cloudpickle.loads(packed)
    with MemoryFile.open(packed.file) as file:
        file.on_chunk = on_chunk or file.on_chunk
        apart, pickled = (_fetch(file, buffer) for buffer in packed.buffers), packed.pickled
        return pickle.loads(
            _read(file, pickled) if isinstance(pickled, Piece) else pickled, buffers=apart
        )


@dataclass(frozen=True)
class _Unread:
    """A storage that is still in its file."""

    file: MemoryFile
    piece: Piece


def _fetch(file: MemoryFile, buffer: Buffer) -> memoryview | _Unread:
    if buffer.storage:
        return _Unread(file, buffer.piece)
    found = _read(file, buffer.piece)
    return found.toreadonly() if buffer.readonly else found


def _read(file: MemoryFile, piece: Piece) -> memoryview:
    """Read a piece into memory that goes back to the system when nobody refers to it any more."""
    memory = mmap.mmap(-1, piece.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(memory)
    file.read_into(piece, view)
    return view


# -- tensors ------------------------------------------------------------------------------------


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a tensor on the CPU to its storage and its view of that; others as torch does.

    Torch itself copies a storage four times and forgets that two tensors share one.
    """
    import torch
    from torch.utils.hooks import warn_if_has_hooks

    plain = (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.__dict__)
    )
    if not plain:
        return NotImplemented
    warn_if_has_hooks(tensor)  # they stay here, as with torch's own way
    view = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return _load_tensor, (tensor.untyped_storage(), tensor.dtype, view, tensor.requires_grad)


def _load_tensor(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    view: tuple[int, tuple[int, ...], tuple[int, ...]],
    requires_grad: bool,
) -> torch.Tensor:
    """Make a tensor again."""
    import torch

    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(storage, *view)
    return tensor.requires_grad_(requires_grad)


def _load_storage(data: bytearray | _Unread) -> torch.UntypedStorage:
    """Make a storage again, which torch has allocated: it can be resized."""
    import torch

    if not isinstance(data, _Unread):
        storage = torch.UntypedStorage(len(data))
        _memory(storage)[:] = data
        return storage
    storage = torch.UntypedStorage(data.piece.size)
    data.file.read_into(data.piece, _memory(storage))
    return storage


def _memory(storage: torch.UntypedStorage) -> memoryview:
    """Return the memory of a storage; whoever looks at it keeps the storage alive."""
    size = storage.nbytes()
    if not size:
        return memoryview(bytearray())
    return memoryview((ctypes.c_ubyte * size).from_address(storage.data_ptr())).cast("B")
