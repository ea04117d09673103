"""The messages of a cell are listed by time, and in a cell that failed only those that were met."""

from __future__ import annotations

from labkit.runtime.messages import Message, list_messages
from labkit.wire.samples import Group, GroupKey, MessageKey, Sample, Size

WORLD = ("0", (0, 1, 2))
PAIR = ("5", (1, 2))


def size(elements: int, posted: int, kind: str = "float32") -> Size:
    return Size(elements, kind, "In[7], line 3", "dist.send(x, 1)", posted)


def sample(rank: int, key: GroupKey = WORLD, **ends: dict[MessageKey, Size]) -> Sample:
    """Return what a rank says that has posted these messages, and nothing else."""
    sizes = ends["sizes"]
    posted: dict[tuple[str, int, int], int] = {}
    for kind, peer, tag, number in sizes:
        posted[kind, peer, tag] = max(number, posted.get((kind, peer, tag), 0))
    group = Group(key, last=-1, entries={}, posted=posted, barriers=0, sizes=sizes)
    return Sample(rank, "idle", groups={key: group})


def ends(messages: list[Message]) -> list[tuple[int, int]]:
    return [(message.sender, message.receiver) for message in messages]


def test_they_are_in_the_order_of_the_clocks():
    samples = {
        0: sample(0, sizes={("send", 1, 0, 1): size(4, 30), ("recv", 2, 0, 1): size(4, 5)}),
        1: sample(1, sizes={("send", 2, 3, 1): size(2, 20, "int64")}),
        2: sample(2, PAIR, sizes={("send", 1, 0, 1): size(1, 25), ("send", 1, 0, 2): size(1, 35)}),
    }
    found = list_messages(samples, well=True)
    assert ends(found) == [(1, 2), (2, 1), (0, 1), (2, 1)]
    assert found[0] == Message(1, 2, 2, "int64", 16, 3, "In[7], line 3")


def test_nobody_has_sent_anything():
    assert list_messages({}, well=True) == []
    assert (
        list_messages({0: sample(0, sizes={("recv_any", -1, 0, 1): size(1, 1)})}, well=True) == []
    )


def test_in_a_cell_that_failed_a_message_needs_its_receive():
    sends = sample(0, sizes={("send", 1, 0, n): size(1, n) for n in (1, 2, 3)})
    others = {
        1: sample(1, sizes={("recv", 0, 0, n): size(1, 1) for n in (1, 2)}),
        2: sample(2, sizes={("recv", 0, 0, 1): size(1, 1)}),
    }
    assert ends(list_messages({0: sends, **others}, well=False)) == [(0, 1)] * 2
    assert ends(list_messages({0: sends}, well=False)) == []
    assert ends(list_messages({0: sends}, well=True)) == [(0, 1)] * 3
    from_any = {1: sample(1, sizes={("recv_any", -1, 0, 1): size(1, 1)})}
    assert ends(list_messages({0: sends, **from_any}, well=False)) == [(0, 1)] * 3
    elsewhere = {1: sample(1, PAIR, sizes={("recv", 0, 0, 1): size(1, 1)})}
    assert ends(list_messages({0: sends, **elsewhere}, well=False)) == []
