"""Read torch's flight recorder, which keeps the last collectives that this rank has issued.

It answers while the rank is blocked. Its JSON is not documented.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import _C

#: How many entries it keeps; torch reads it once, when the first group is made. Torch reads an
#: older name too, TORCH_NCCL_TRACE_BUFFER_SIZE, but only where this one is not set: labkit sets it.
SIZE = "TORCH_FR_BUFFER_SIZE"
#: Bytes of an element, by the name that the recorder has for its type.
BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip


class Issued(NamedTuple):
    """A collective or a message that this rank has issued."""

    group: str  #: the group's name, which comes again after ``destroy_process_group``
    number: int  #: of the collectives of its group, from 1: ranks match them by it
    operation: int  #: of all operations of its group, messages too
    name: str  #: "gloo:all_reduce"
    created: int  #: nanoseconds since 1970
    done: bool
    shapes: Sequence[
        Sequence[int]
    ] = ()  #: of what it gives, or of what it gets where it gives nothing
    types: Sequence[str] = ()
    is_message: bool = False


def read(backend: str) -> list[Issued]:
    """Return what the recorder of a backend has, oldest first."""
    return [_issued(entry) for entry in json.loads(_dump(backend)).get("entries", [])]


def _dump(backend: str) -> bytes:
    dump = _C._distributed_c10d._dump_fr_trace_json
    try:
        return dump(backend=backend)
    except TypeError:  # an older torch has one recorder for all backends
        return dump()


def _issued(entry: Mapping[str, Any]) -> Issued:
    return Issued(
        group=entry["process_group"][0],
        number=int(entry["collective_seq_id"]),
        operation=int(entry["op_id"]),
        name=entry["profiling_name"],
        created=int(entry["time_created_ns"]),
        done=bool(entry["retired"]) or entry["state"] == "completed",
        shapes=entry["input_sizes"] or entry["output_sizes"],
        types=entry["input_dtypes"] or entry["output_dtypes"],
        is_message=bool(entry["is_p2p"]),
    )


def switched_off(environment: Mapping[str, str] = os.environ) -> str:
    """Return the setting by which the user has switched the recorder off, "" if it is on."""
    value = environment.get(SIZE, "")
    return f"{SIZE}={value}" if re.fullmatch(r"\s*[+-]?0+", value) else ""
