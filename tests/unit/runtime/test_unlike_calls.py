"""Collectives that met one another and were not alike, by what each rank has said of its cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.runtime.messages import may_be_meant
from labkit.runtime.unlike_calls import find
from labkit.wire.samples import UNKNOWN, UNSEEN, Calls, CellCalls, Kind

KEY = ("0", (0, 1, 2))
SUM = Kind("all_reduce", "gloo", ("float32",), op="SUM", where="In[2], line 3", direct=True)
COPY = Kind("broadcast", "gloo", ("float32",), elements=4, where="In[2], line 3", direct=True)


def met(*kinds, number=3):
    """Return what is said, each sentence once, where ranks gave one collective these kinds."""
    told = {
        rank: CellCalls(rank, {KEY: Calls(number, (0,), (kind,), whole=True)})
        for rank, kind in enumerate(kinds)
        if kind is not None
    }
    return list(dict.fromkeys(text for texts in find(told).values() for text in texts))


def at(line, kind=SUM):
    return replace(kind, where=f"In[2], line {line}")


def of(*types, kind=SUM):
    return replace(kind, types=types)


# -- types ----------------------------------------------------------------------------------------


def test_types_are_named_with_their_ranks_and_what_to_write():
    assert met(of("int32"), SUM, SUM) == [
        "UserWarning (In[2], line 3): all_reduce (collective 3): int32 on rank 0, float32 on ranks "
        "1–2: gloo adds up their bytes as they are, so the result is wrong. Convert first: "
        "x.float()."
    ]
    assert met(of("int64", kind=COPY), of("float64", kind=COPY)) == [
        "UserWarning (In[2], line 3): broadcast (collective 3): int64 on rank 0, float64 on rank "
        "1: gloo copies their bytes as they are, so the result is wrong. Convert first: x.double()."
    ]
    assert "x.float()" in met(of("float16"), of("bfloat16"))[0]
    assert "NCCL adds up" in met(*(replace(of(t), backend="nccl") for t in ("int32", "float32")))[0]


def test_lines_are_named_where_they_are_not_the_same():
    assert (
        "int32 on rank 0 (In[2], line 3), float32 on rank 1 (In[2], line 5)"
        in (met(of("int32"), at(5))[0])
    )


def test_every_rank_says_the_same_and_a_line_once():
    told = {
        rank: CellCalls(rank, {KEY: Calls(9, (0, 1, 0, 1), (of(kind), at(7, of(kind))), True)})
        for rank, kind in enumerate(("int32", "float32"))
    }
    found = find(told)
    assert found[0] == found[1]
    assert [text[:33] for text in found[0]] == [
        "UserWarning (In[2], line 3): all_",
        "UserWarning (In[2], line 7): all_",
    ]
    assert "(collective 6)" in found[0][0]


def test_roots_that_differ_are_named():
    """Seen on an H200: NCCL ends a broadcast from two sources without a word."""
    (text,) = met(replace(COPY, root=0), replace(COPY, root=1), replace(COPY, root=1))
    assert "broadcast (collective 3): the source is rank 0 on rank 0, rank 1 on ranks 1–2" in text
    (text,) = met(replace(COPY, name="gather", root=2), replace(COPY, name="gather", root=0))
    assert "gather (collective 3): the destination is rank 2 on rank 0, rank 0 on rank 1" in text
    assert met(replace(COPY, root=1), replace(COPY, root=1), COPY) == []


def test_what_is_not_known_is_not_compared():
    assert met(of(), SUM) == []
    assert met(of("int32"), None, None) == []
    assert met(of("int32", "float32"), SUM) == []
    assert met(of("int32", "float32"), of("float32", "int32")) != []
    barrier = Kind("barrier", "gloo", ())
    assert met(barrier, SUM) == []


@pytest.mark.parametrize(
    ("one", "other", "copied", "meant"),
    [
        ("float32", "float32", False, True),
        ("bool", "uint8", False, True),
        ("complex64", "float32", False, True),
        ("complex64", "float64", True, False),
        ("float8_e5m2", "uint8", True, True),
        ("float32", "uint8", True, True),
        ("float32", "uint8", False, False),
        ("int8", "uint8", True, False),
        ("int16", "bfloat16", True, False),
    ],
)
def test_bytes_by_intent(one, other, copied, meant):
    assert may_be_meant(one, other, copied=copied) == meant
    assert may_be_meant(other, one, copied=copied) == meant
    kind = SUM if not copied else replace(COPY, elements=-1)
    assert (met(of(one, kind=kind), of(other, kind=kind)) == []) == meant


# -- memory, operation, size ----------------------------------------------------------------------


def test_gaps_are_wrong_by_themselves():
    gaps = replace(COPY, gaps=True)
    assert met(gaps, gaps, COPY) == [
        "UserWarning (In[2], line 3): broadcast (collective 3) of a tensor that is not contiguous "
        "on ranks 0–1: gloo takes its memory element after element, whatever its strides are, so "
        "the result is wrong. Pass y = x.contiguous(), and copy a result back: x.copy_(y)."
    ]


def test_orders_have_to_be_the_same():
    turned = replace(SUM, order="1,0")
    assert met(turned, turned) == []
    assert met(turned, replace(SUM, order=UNKNOWN)) == []
    assert met(SUM, turned) == [
        "UserWarning (In[2], line 3): all_reduce (collective 3): the tensor is contiguous on rank "
        "0, transposed (dimensions 1,0 in memory) on rank 1: gloo pairs elements as they lie in "
        "memory, so the result is wrong. Pass x.contiguous() on every rank."
    ]


def test_operations_have_to_be_the_same():
    assert met(SUM, replace(SUM, op="")) == []
    assert met(SUM, replace(SUM, op="MAX"), SUM) == [
        "UserWarning (In[2], line 3): all_reduce (collective 3): SUM on ranks 0, 2, MAX on rank 1: "
        "each rank combines what comes by its own operation. Pass the same op on every rank."
    ]


def test_sizes_have_to_be_the_same_where_a_short_tensor_passes():
    assert met(COPY, replace(COPY, elements=2)) == [
        "UserWarning (In[2], line 3): broadcast (collective 3): 4 elements of float32 on rank 0, "
        "2 elements of float32 on rank 1: gloo takes fewer for all, and the rest keeps its old "
        "values. Every rank has to bring a tensor of the same size."
    ]
    assert met(COPY, replace(COPY, elements=16, types=("uint8",))) == []
    assert met(SUM, replace(SUM, elements=2)) == []


# -- calls that have slipped ----------------------------------------------------------------------

LOOP, METRIC, EVAL, LAST = (at(line) for line in (3, 4, 6, 7))
#: What torch issues in C++.
DDP = Kind("all_reduce", "gloo", ("float32",), order=UNKNOWN)
KINDS = {
    "P": LOOP, "Q": METRIC, "R": EVAL, "S": LAST, "d": DDP, "?": None,
    "b": replace(at(9), name="barrier"), "m": replace(LAST, direct=False),
}  # fmt: skip


def slipped(*orders, whole=True):
    """Return what is said where ranks came by the lines of ``KINDS`` in these orders."""
    told = {}
    for rank, order in enumerate(orders):
        kinds = tuple(dict.fromkeys(k for c in order if (k := KINDS[c]) is not None))
        numbers = tuple(UNSEEN if KINDS[c] is None else kinds.index(KINDS[c]) for c in order)
        key = ("0", tuple(range(len(orders))))
        told[rank] = CellCalls(rank, {key: Calls(len(order), numbers, kinds, whole)})
    return list(dict.fromkeys(text for texts in find(told).values() for text in texts))


def test_a_shorter_loop_and_the_call_after_it():
    assert slipped("PPPPQR", "PPPQRR") == [
        "UserWarning (In[2], line 4): this call on rank 1 (collective 4) met the one at In[2], "
        "line 3 on rank 0, so the result is wrong. That line had made 4 on rank 0 and 3 on rank "
        "1: every rank has to make as many calls (uneven data?)."
    ]
    assert len(slipped("PPPPQRRRS", "PPPQRRRRS", "PPPQRRRRS")) == 1
    assert len(slipped("PPPPQPPS", "PPPQPPPS")) == 1  # one line in both loops


def test_ddp_met_by_the_call_after_the_loop():
    assert slipped("ddddQdddS", "dddQddddS") == [
        "UserWarning (In[2], line 4): this call on rank 1 (collective 4) met one that torch issued "
        "itself, as DDP's backward does, on rank 0, so the result is wrong. It had made 4 on rank "
        "0 and 3 on rank 1: every rank has to make as many calls (uneven data?)."
    ]
    assert len(slipped("????QdddS", "???QddddS")) == 1  # too old for the recorder


@pytest.mark.parametrize(
    "orders",
    [
        pytest.param(("PQ", "PQ"), id="the same"),
        pytest.param(("P", "Q"), id="a branch for each rank"),
        pytest.param(("PSPS", "QSQS"), id="branches in a loop"),
        pytest.param(("PQPQS", "QPQPS"), id="turns"),
        pytest.param(("PQQPQS", "QPQQPS", "QQPQQS"), id="unequally many turns"),
        pytest.param(("PPPPQ", "PPPQQ"), id="who is ready goes on with another line"),
        pytest.param(("PPPPRS", "PPPRRS"), id="and all end together"),
        pytest.param(("dddm", "ddmm"), id="a module's own call, as of join()"),
        pytest.param(("bP", "Pb"), id="a barrier has no result"),
        pytest.param(("dQd", "dQd"), id="DDP and an own call in turns"),
    ],
)
def test_what_may_be_meant(orders):
    assert slipped(*orders) == []


def test_lines_are_compared_only_where_all_of_a_cell_is_known():
    assert slipped("PPPPQR", "PPPQRR", whole=False) == []
    told = {0: CellCalls(0, {("0", (0, 1)): Calls(2, (0, 1), (LOOP, METRIC), True)})}
    assert find(told) == {}
    assert find({}) == {}
