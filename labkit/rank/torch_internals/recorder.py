"""Read torch's flight recorder, which keeps the last collectives that this rank has issued.

It answers while the rank is blocked. What it says is not documented. It is taken as a pickle, which
torch writes three times as fast as its JSON, and which says the same.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import _C

from ...base import times, variables
from .. import steady

#: How many entries it keeps; torch reads it once, when the first group is made. Torch reads an
#: older name too, TORCH_NCCL_TRACE_BUFFER_SIZE, but only where this one is not set: labkit sets it.
SIZE, FORMER_SIZE = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
#: Bytes of an element, by the name that the recorder has for its type.
BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip

#: NCCL's names for a message, and for the end of a batch of them.
MESSAGE = re.compile(r"nccl:(send|recv) (\d+)(?:->|<-)(\d+)")
BATCH = ":coalesced"
#: What NCCL calls otherwise than the program did.
NAMES = {"nccl:all_reduce_barrier": "nccl:barrier"}


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
    backend: str = "gloo"
    #: this rank is in the call, and NCCL has not begun with it: it connects with the other ranks
    held: bool = False

    @property
    def own(self) -> int:
        """The number that its Work has: NCCL's counts collectives alone."""
        return self.operation if self.backend == "gloo" else self.number


def read(backend: str) -> list[Issued]:
    """Return what the recorder of a backend has, oldest first."""
    return [_issued(entry) for entry in pickle.loads(_dump(backend)).get("entries", [])]


def _dump(backend: str) -> bytes:
    known = _C._distributed_c10d
    if backend == "nccl":  # it keeps its own, with the events of the GPU
        dump = getattr(known, "_dump_nccl_trace", None)
        return pickle.dumps({}) if dump is None else dump(includeStackTraces=False)
    dump = partial(known._dump_fr_trace, includeStackTraces=False)
    try:
        return dump(backend=backend)
    except TypeError:  # an older torch has one recorder for all other backends
        return dump()


def _issued(entry: Mapping[str, Any]) -> Issued:
    completed, retired = entry["state"] == "completed", bool(entry["retired"])
    backend = entry["profiling_name"].partition(":")[0]
    created = int(entry["time_created_ns"])
    # NCCL's entries follow an event of CUDA. One that was not put on the GPU yet counts as reached;
    # but what was reached is retired by the watchdog, which looks ten times a second.
    held = backend == "nccl" and completed and not retired and _is_old(created)
    name = NAMES.get(entry["profiling_name"], entry["profiling_name"])
    shapes = () if name.endswith(":barrier") else entry["input_sizes"] or entry["output_sizes"]
    return Issued(
        group=entry["process_group"][0],
        number=int(entry["collective_seq_id"]),
        operation=int(entry["op_id"]),
        name=name,
        created=created,
        done=retired or (completed and not held),
        shapes=shapes,
        types=entry["input_dtypes"] or entry["output_dtypes"],
        is_message=bool(entry["is_p2p"]) or entry["profiling_name"].endswith(BATCH),
        backend=backend,
        held=held,
    )


def _is_old(created: int) -> bool:
    """Return whether an entry was made so long ago that the watchdog has seen its end since."""
    return steady.since_1970() - created > times.RETIRED * 1e9


def close_batches(entries: Sequence[Issued]) -> list[Issued]:
    """Return NCCL's entries with the messages of a batch as far as the batch is.

    NCCL follows a batch as one: what the recorder has on each of its messages never changes, and
    after them comes an entry of its own. That one is left out.
    """
    found: list[Issued] = []
    since: dict[str, int] = {}  # group -> where its messages begin that no batch has closed
    for entry in entries:
        if not entry.name.endswith(BATCH):
            found.append(entry)
            continue
        begin, since[entry.group] = since.get(entry.group, 0), len(found)
        for i in range(begin, len(found)):
            if found[i].group == entry.group and found[i].is_message:
                found[i] = found[i]._replace(done=found[i].done or entry.done, held=entry.held)
    return found


def read_message(entry: Issued) -> tuple[str, int, int] | None:
    """Read kind, own rank and peer (in the group) from NCCL's name for a message, None if it is
    none: "nccl:send 0->1", "nccl:recv 1<-0"."""
    match = MESSAGE.fullmatch(entry.name)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


def check_settings(environment: MutableMapping[str, str] = os.environ) -> None:
    """Take back settings of the recorder that are empty: torch would end the process over them.

    Raises
    ------
    UsageError
        If one is no number, over which it would end the process too.
    """
    allowed = "a whole number, the entries of torch's flight recorder; got"
    for name in (SIZE, FORMER_SIZE):
        if variables.read(name, _entries, allowed, environment) is None:
            environment.pop(name, None)


def _entries(text: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,9}", text):
        raise ValueError(text)
    return int(text)


def switched_off(environment: Mapping[str, str] = os.environ) -> str:
    """Return the setting by which the user has switched the recorder off, "" if it is on."""
    value = environment.get(SIZE, "")
    return f"{SIZE}={value}" if re.fullmatch(r"\s*[+-]?0+", value) else ""
