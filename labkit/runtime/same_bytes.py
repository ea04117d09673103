"""Know which types of tensors have bytes that mean the same, and which only have as many.

Neither gloo nor NCCL sends the type of a tensor along: what comes is taken for what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Types by what holds the most, and the method that turns a tensor into it; where float16 meets
#: bfloat16, float32 holds both.
CONVERSIONS = {
    "complex128": "to(torch.complex128)", "complex64": "to(torch.complex64)",
    "float64": "double()", "float32": "float()", "float16": "float()", "bfloat16": "float()",
    "int64": "long()", "int32": "int()", "int16": "short()", "int8": "short()",
}  # fmt: skip
#: Complex types and what ``torch.view_as_real`` makes of them.
PARTS = {"complex64": "float32", "complex128": "float64"}


def width(kind: str) -> int:
    """Return how many bytes an element of a type has: ``bfloat16`` 2, ``complex64`` 8, bool 1."""
    bits = re.search(r"\d+", kind)
    return int(bits[0]) // 8 if bits else 1


def may_be_meant(one: str, other: str, *, copied: bool = True) -> bool:
    """Tell whether a tensor of one type may be given on purpose where another rank has another.

    Parameters
    ----------
    copied
        Bytes arrive as they are; else they are added up, and uint8 stands for bool alone.

    >>> may_be_meant("bool", "uint8"), may_be_meant("int32", "float32")
    (True, False)
    >>> may_be_meant("uint8", "float32"), may_be_meant("uint8", "float32", copied=False)
    (True, False)
    """
    pair = {one, other}
    if len(pair) == 1 or pair == {"bool", "uint8"}:
        return True
    if any(PARTS.get(kind) in pair for kind in pair):
        return True
    # Bytes by intent: of a float8, which gloo does not know, or as many as something larger has.
    (rest, *_) = pair - {"uint8"}
    return copied and "uint8" in pair and (rest.startswith("float8") or width(rest) > 1)


def conversion(kinds: Iterable[str]) -> str:
    """Return the call that turns a tensor into the type that holds the values of all: "float()"."""
    found = set(kinds)
    return next((method for kind, method in CONVERSIONS.items() if kind in found), "int()")
