"""What sends and receives say of one another: lists by time, and warnings of those that differ."""

from __future__ import annotations

from labkit.runtime.messages import Message, list_messages
from labkit.runtime.messages import find_too_short as too_short
from labkit.wire.samples import Group, Sample, Size

WORLD = ("0", (0, 1, 2))
PAIR = ("5", (1, 2))


def size(elements, line=3, kind="float32", posted=0):
    return Size(elements, kind, f"In[7], line {line}" if line else "", "dist.send(x, 1)", posted)


def sample(rank, sizes, key=WORLD, **posted_before):
    """Return what a rank says that has posted these messages, and nothing else."""
    posted = {}
    for kind, peer, tag, number in sizes:
        posted[kind, peer, tag] = max(number, posted.get((kind, peer, tag), 0))
    posted |= {(kind, -1, 0): n for kind, n in posted_before.items()}
    group = Group(key, last=-1, entries={}, posted=posted, barriers=0, sizes=sizes)
    return Sample(rank, "idle", groups={key: group})


def ends(messages):
    return [(message.sender, message.receiver) for message in messages]


def test_they_are_in_the_order_of_the_clocks():
    samples = {
        0: sample(
            0, sizes={("send", 1, 0, 1): size(4, posted=30), ("recv", 2, 0, 1): size(4, posted=5)}
        ),
        1: sample(1, sizes={("send", 2, 3, 1): size(2, kind="int64", posted=20)}),
        2: sample(
            2,
            key=PAIR,
            sizes={("send", 1, 0, 1): size(1, posted=25), ("send", 1, 0, 2): size(1, posted=35)},
        ),
    }
    found = list_messages(samples, well=True)
    assert ends(found) == [(1, 2), (2, 1), (0, 1), (2, 1)]
    assert found[0] == Message(1, 2, 2, "int64", 16, 3, "In[7], line 3")


def test_nobody_has_sent_anything():
    assert list_messages({}, well=True) == []
    assert list_messages({0: sample(0, sizes={("recv_any", -1, 0, 1): size(1)})}, well=True) == []


def test_in_a_cell_that_failed_a_message_needs_its_receive():
    sends = sample(0, sizes={("send", 1, 0, n): size(1, posted=n) for n in (1, 2, 3)})
    others = {
        1: sample(1, sizes={("recv", 0, 0, n): size(1) for n in (1, 2)}),
        2: sample(2, sizes={("recv", 0, 0, 1): size(1)}),
    }
    assert ends(list_messages({0: sends, **others}, well=False)) == [(0, 1)] * 2
    assert ends(list_messages({0: sends}, well=False)) == []
    assert ends(list_messages({0: sends}, well=True)) == [(0, 1)] * 3
    from_any = {1: sample(1, sizes={("recv_any", -1, 0, 1): size(1)})}
    assert ends(list_messages({0: sends, **from_any}, well=False)) == [(0, 1)] * 3
    elsewhere = {1: sample(1, key=PAIR, sizes={("recv", 0, 0, 1): size(1)})}
    assert ends(list_messages({0: sends, **elsewhere}, well=False)) == []


def found(sent, room):
    """Compare a send of rank 0 with a receive of rank 1."""
    return too_short(
        {0: sample(0, {("send", 1, 0, 3): sent}), 1: sample(1, {("recv", 0, 0, 3): room})}
    )


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
                f"Receive into {sent.type}, and convert afterwards."
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
    assert len(too_short({0: sample(0, sends), 1: sample(1, receives)})[1]) == 2


def test_only_the_same_message_is_compared():
    sends = {("send", 1, 0, 1): size(2, 2), ("send", 2, 0, 2): size(2, 2)}
    receives = {("recv", 0, 0, 2): size(4, 3), ("recv", 0, 1, 1): size(4, 3)}
    assert too_short({0: sample(0, sends), 1: sample(1, receives)}) == {}
    assert too_short({1: sample(1, {("recv", 0, 0, 1): size(4, 3)})}) == {}  # the send is not known


def test_other_groups_with_the_name_are_others():
    sent = sample(0, {("send", 1, 0, 1): size(2, 2)})
    (group,) = sent.groups.values()
    elsewhere = Sample(0, "idle", groups={("0", (0, 1)): group})
    assert too_short({0: elsewhere, 1: sample(1, {("recv", 0, 0, 1): size(4, 3)})}) == {}


def test_from_any_rank_only_if_one_has_sent():
    room = sample(1, {("recv_any", -1, 0, 1): size(4, 3)})
    one = sample(0, {("send", 1, 0, 1): size(2, 2)})
    assert "rank 0 sent 2 elements" in too_short({0: one, 1: room})[1][0]
    two = sample(2, {("send", 1, 0, 1): size(4, 2)})
    assert too_short({0: one, 1: room, 2: two}) == {}
    more = sample(1, {("recv_any", -1, 0, 2): size(4, 3)})  # another cell's took the first send
    assert too_short({0: one, 1: more}) == {}


def test_receives_of_both_kinds_share_what_comes():
    sent = sample(0, {("send", 1, 0, 1): size(2, 2)})
    room = sample(1, {("recv", 0, 0, 1): size(4, 3)}, recv_any=1)
    assert too_short({0: sent, 1: room}) == {}
