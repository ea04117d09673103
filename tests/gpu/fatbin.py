"""Leave out of a CUDA library what is compiled for other GPUs: a tenth of it is then to be carried.

A "fat binary" holds the same kernels for several compute capabilities, each in an entry with a
header: kind (1 is PTX, 2 machine code), sizes, capability (90 is 9.0, Hopper). The driver loads the
entry that suits the GPU and reads no other, so the others may hold zeros, which compress to
nothing. The layout is that which ``cuobjdump`` shows of libraries of CUDA 12 and 13.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
#: Magic, version, size of this header, bytes of all entries.
HEADER = struct.Struct("<IHHQ")
#: Kind, attributes, size of this header, bytes of the payload; and where the capability stands.
ENTRY, CAPABILITY = struct.Struct("<HHIQ"), 28


def clear_others(library: bytearray, capability: int) -> int:
    """Fill the code for other compute capabilities with zeros; return the bytes that are left.

    Raises
    ------
    ValueError
        If the library has no code for this capability; nothing is changed then.
    """
    others: list[tuple[int, int]] = []
    kept = 0
    at = library.find(MAGIC)
    while at >= 0:
        _, version, size, total = HEADER.unpack_from(library, at)
        if (version, size) != (1, HEADER.size):
            at = library.find(MAGIC, at + 1)
            continue
        at += size
        end = at + total
        while at < end:
            _, _, size, payload = ENTRY.unpack_from(library, at)
            (found,) = struct.unpack_from("<I", library, at + CAPABILITY)
            if found == capability:
                kept += payload
            else:
                others.append((at + size, payload))
            at += size + payload
        at = library.find(MAGIC, end)
    if not kept:
        raise ValueError(f"the library has no code for compute capability {capability / 10}")
    for begin, length in others:
        library[begin : begin + length] = bytes(length)
    return kept


def shrink(wheel: Path, library: str, capability: int) -> None:
    """Write a wheel anew that has only this library, for one compute capability."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(f"/{library}"))
        code = bytearray(content.read(name))
    clear_others(code, capability)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_LZMA) as content:
        content.writestr(name, bytes(code))
