"""What a rank says at the end of a cell of the collectives that it has issued in it.

Ranks and roots are numbered as ``torch.distributed`` does on them, which is the same on all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .samples import GroupKey

#: Stands for the kind of a collective that torch issued in C++ and of which no more is known.
UNSEEN = -1
#: The order of what torch issued in C++: nobody has seen its tensors.
UNKNOWN = "?"


@dataclass(frozen=True)
class Kind:
    """What collectives of a rank have in common, those of a loop for example."""

    name: str  #: "all_reduce", whatever its form
    backend: str
    types: tuple[str, ...]  #: ("float32",); more than one if its tensors have several
    #: of a tensor, where one that is too short would be taken for a complete one; else -1
    elements: int = -1
    #: of the dimensions in memory where the backend keeps to that: "" as in a contiguous tensor,
    #: "1,0" transposed
    order: str = ""
    gaps: bool = False  #: the backend reads or fills memory that is not the tensor's
    op: str = ""  #: "SUM"
    root: int = -1  #: -1 if it has none
    where: str = ""  #: "In[7], line 3"; "" if torch issued it in C++, or no cell did
    direct: bool = False  #: that line calls torch.distributed itself, not by way of a module


@dataclass(frozen=True)
class Calls:
    """The newest collectives of one group in a cell."""

    last: int  #: number of the newest one, from 1 in its group
    numbers: tuple[int, ...]  #: of each up to the last: its place in ``kinds``, or ``UNSEEN``
    kinds: tuple[Kind, ...]
    whole: bool  #: there were no more in this cell


@dataclass(frozen=True)
class CellCalls:
    """What one rank has issued in a cell."""

    rank: int
    groups: Mapping[GroupKey, Calls]
