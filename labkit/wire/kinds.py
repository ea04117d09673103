"""Say of what kind a value is, in a learner's words: "a list of 3 lists", "a tensor of int64".

Torch is not imported for it: a rank has it, the notebook's kernel may not need it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

#: One word for the items of a list, by their type.
_ITEMS = {
    bool: "True or False",
    int: "number",
    float: "number",
    str: "text",
    bytes: "bytes",
    list: "list",
    tuple: "tuple",
    dict: "dict",
    type(None): "None",
}
#: Items of a list that are all described, if they are not of one kind.
_LISTED = 3
#: What has no plural.
_UNCOUNTED = ("True or False", "bytes", "None")


def kind_of(value: Any) -> str:
    """Describe the type of a value, with the length or shape where it has one."""
    if value is None or value is ...:
        return str(value)
    if isinstance(value, bool):
        return "True or False"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number with a decimal point"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, list | tuple | set | frozenset):
        return _collection(value)
    if isinstance(value, Mapping):
        return f"a dict of {len(value)} {'entry' if len(value) == 1 else 'entries'}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        what = "a tensor" if type(value).__module__.startswith("torch") else "an array"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{what} of {dtype} with shape {tuple(value.shape)}"
    if isinstance(value, types.GeneratorType):
        return "a generator"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "a function"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__.lstrip("_")
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"


def _collection(value: Any) -> str:
    name = "set" if isinstance(value, set | frozenset) else type(value).__name__
    name = name if name in ("list", "set") else "tuple"
    if not value:
        return f"an empty {name}"
    words = {_item(item) for item in value}
    if len(words) > 1 and len(value) <= _LISTED:
        return f"a {name} of {' and '.join(map(kind_of, value))}"
    word = words.pop() if len(words) == 1 else "item"
    if word in _UNCOUNTED:
        return f"a {name} of {word}"
    return f"a {name} of {len(value)} {word}{'' if len(value) == 1 else 's'}"


def _item(value: Any) -> str:
    if type(value) in _ITEMS:
        return _ITEMS[type(value)]
    if callable(value) and hasattr(value, "__code__"):
        return "function"
    return "tensor" if type(value).__name__ == "Tensor" else "item"
