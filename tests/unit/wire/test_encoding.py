"""Messages: what is written is read again, and what is not as it should be is named."""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.wire.encoding import ProtocolError, decode, encode
from labkit.wire.requests import Question
from labkit.wire.samples import Entry, Group, Sample, Wait

#: JSON has no word for these.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))

KINDS = [k for q in Question.kinds.values() for k in (q, q.answer)]


def sent(value: object) -> object:
    """Return what arrives at the other end of a channel that carries JSON."""
    return json.loads(json.dumps(encode(value)))


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_sent_arrives(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    assert decode(kind, sent(value)) == value


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    share: float
    pairs: frozenset[tuple[str, int]]
    sizes: Mapping[tuple[str, int], int]
    by_name: Mapping[str, Inner]


GOOD = {"inner": None, "share": 1, "pairs": [["a", 1]], "sizes": {}, "by_name": {}}


def test_a_good_one() -> None:
    assert decode(Outer, GOOD) == Outer(None, 1, frozenset({("a", 1)}), {}, {})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"inner": {"sizes": []}}, r"required field `name` - at `\$.inner`"),
        ({"inner": {"name": "a", "sizes": [], "more": 1}}, "has an unknown more$"),
        ({"inner": {"name": 3, "sizes": []}}, r"Expected `str`, got `int` - at `\$.inner.name`$"),
        ({"inner": {"name": "", "sizes": 3}}, r"Expected `array`, got `int`"),
        ({"inner": {"name": "", "sizes": [True]}}, r"Expected `int`, got `bool`"),
        ({"inner": []}, r"Expected `object \| null`, got `array`"),
        ({"share": None}, r"Expected `float`, got `null`"),
        ({"pairs": [["a"]]}, "Expected `array` of length 2, got 1"),
        ({"sizes": {"": [[["a", "b"], 1]]}}, "Expected `int`, got `str` - at `key"),
        ({"sizes": {"": 3}}, "int"),
        ({"by_name": [["a", {}]]}, "Expected `object`, got `array`"),
        ({"by_name": {"a": {"name": "", "sizes": [], "more": 1}}}, "unknown more$"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(changed: dict[str, object], says: str) -> None:
    with pytest.raises(ProtocolError, match=f"^Outer.*{says}"):
        decode(Outer, GOOD | changed)


@pytest.mark.parametrize("kind", [k for k in KINDS if fields(k)], ids=lambda kind: kind.__name__)
@settings(max_examples=1, deadline=None)
@given(st.data())
def test_every_key_that_is_renamed_is_an_error(kind: type, data: st.DataObject) -> None:
    plain = sent(data.draw(st.from_type(kind)))
    assert isinstance(plain, dict)
    for key in plain:
        renamed = {f"{k}_" if k == key else k: v for k, v in plain.items()}
        with pytest.raises(ProtocolError, match=key):
            decode(kind, renamed)


def test_a_busy_rank_writes_a_sample_in_no_time() -> None:
    """Ten times a second at most: twice what JSON takes for the same is the rule, six the bound."""
    keys = [(str(i), tuple(range(8))) for i in range(4)]
    entries = {i: Entry(i, "all_reduce", ((2, 3),), ("Float",), True) for i in range(5, 11)}
    posted = {("send", i, 0): 3 for i in range(8)}
    groups = {key: Group(key, 9, entries, posted, 2) for key in keys}
    wait = Wait("collective", ((keys[0], 9),), call="all_reduce", seconds=1.5)
    sample = Sample(1, "waiting", True, wait, (11, 22), groups, frozenset({("In[7]", "0")}), 4)
    assert decode(Sample, sent(sample)) == sample
    plain = encode(sample)
    ratio = fastest(lambda: encode(sample)) / fastest(lambda: json.dumps(plain))
    assert ratio < 6


def fastest(work: Callable[[], object]) -> float:
    """Return the fewest seconds of CPU time that a hundred calls take."""
    return min(timeit.repeat(work, timer=process_time, number=100, repeat=5))
