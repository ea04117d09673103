"""Messages that were shorter than their receives, by what both ends have on record."""

from __future__ import annotations

from labkit.runtime.messages import find_too_short as find
from labkit.wire.samples import Group, MessageKey, Sample, Size

KEY = ("0", (0, 1, 2))


def sample(rank: int, sizes: dict[MessageKey, Size], **posted_before: int) -> Sample:
    """Return what a rank says that has posted these messages, and nothing else."""
    posted: dict[tuple[str, int, int], int] = {}
    for kind, peer, tag, number in sizes:
        posted[kind, peer, tag] = max(number, posted.get((kind, peer, tag), 0))
    posted |= {(kind, -1, 0): n for kind, n in posted_before.items()}
    group = Group(KEY, last=-1, entries={}, posted=posted, barriers=0, sizes=sizes)
    return Sample(rank, "idle", groups={KEY: group})


def size(elements: int, line: int, kind: str = "float32") -> Size:
    return Size(elements, kind, f"In[7], line {line}" if line else "", "")


def found(sent: Size, room: Size) -> dict[int, list[str]]:
    """Compare a send of rank 0 with a receive of rank 1."""
    return find({0: sample(0, {("send", 1, 0, 3): sent}), 1: sample(1, {("recv", 0, 0, 3): room})})


def test_both_lines_are_named():
    assert found(size(2, 2), size(4, 3)) == {
        1: [
            "UserWarning (In[7], line 3): rank 0 sent 2 elements of float32 (In[7], line 2), "
            "fewer than the 4 of this receive: the rest keeps its old values."
        ]
    }


def test_what_fills_the_tensor_is_well():
    assert found(size(4, 2), size(4, 3)) == {}
    assert found(size(16, 2, "uint8"), size(4, 3)) == {}  # as many bytes
    assert found(size(0, 2), size(0, 3)) == {}


def test_bytes_of_another_type():
    for sent, room in (
        (size(4, 2, "int32"), size(4, 3)),
        (size(2, 2, "int64"), size(4, 3)),
        (size(4, 2, "float16"), size(4, 3, "bfloat16")),
    ):
        count = f"{sent.elements} elements of {sent.type}"
        assert found(sent, room) == {
            1: [
                f"UserWarning (In[7], line 3): rank 0 sent {count} (In[7], line 2), and this "
                f"receive takes their bytes for {room.type}, so the numbers are wrong. "
                "Convert first: x.float()."
            ]
        }


def test_bytes_that_may_be_meant():
    assert found(size(4, 2, "bool"), size(4, 3, "uint8")) == {}
    assert found(size(2, 2, "complex64"), size(4, 3)) == {}  # view_as_real
    assert found(size(4, 2, "float8_e4m3fn"), size(4, 3, "uint8")) == {}
    assert found(size(4, 2, "int8"), size(4, 3, "uint8")) != {}


def test_bytes_are_compared():
    (said,) = found(size(1, 0), size(1, 0, "int64"))[1]
    assert said == (
        "UserWarning: rank 0 sent 1 element of float32, fewer bytes than the 1 of int64 of this "
        "receive: the rest keeps its old values."
    )


def test_a_line_is_named_once():
    sends = {("send", 1, 0, n): size(2, 2) for n in range(1, 6)}
    receives = {("recv", 0, 0, n): size(4, 3 + n % 2) for n in range(1, 6)}
    assert len(find({0: sample(0, sends), 1: sample(1, receives)})[1]) == 2


def test_only_the_same_message_is_compared():
    sends = {("send", 1, 0, 1): size(2, 2), ("send", 2, 0, 2): size(2, 2)}
    receives = {("recv", 0, 0, 2): size(4, 3), ("recv", 0, 1, 1): size(4, 3)}
    assert find({0: sample(0, sends), 1: sample(1, receives)}) == {}
    assert find({1: sample(1, {("recv", 0, 0, 1): size(4, 3)})}) == {}  # the send is not known


def test_other_groups_with_the_name_are_others():
    sent = sample(0, {("send", 1, 0, 1): size(2, 2)})
    (group,) = sent.groups.values()
    elsewhere = Sample(0, "idle", groups={("0", (0, 1)): group})
    assert find({0: elsewhere, 1: sample(1, {("recv", 0, 0, 1): size(4, 3)})}) == {}


def test_from_any_rank_only_if_one_has_sent():
    room = sample(1, {("recv_any", -1, 0, 1): size(4, 3)})
    one = sample(0, {("send", 1, 0, 1): size(2, 2)})
    assert "rank 0 sent 2 elements" in find({0: one, 1: room})[1][0]
    two = sample(2, {("send", 1, 0, 1): size(4, 2)})
    assert find({0: one, 1: room, 2: two}) == {}
    more = sample(1, {("recv_any", -1, 0, 2): size(4, 3)})  # another cell's took the first send
    assert find({0: one, 1: more}) == {}


def test_receives_of_both_kinds_share_what_comes():
    sent = sample(0, {("send", 1, 0, 1): size(2, 2)})
    room = sample(1, {("recv", 0, 0, 1): size(4, 3)}, recv_any=1)
    assert find({0: sent, 1: room}) == {}
