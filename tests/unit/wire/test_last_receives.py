"""Receives in a file, the newest kept."""

from labkit.wire import protocol
from labkit.wire.protocol import SLOTS, Receive, ReceiveBook


def receive(number: int, line: str = "dist.recv(x, 0)") -> Receive:
    return Receive(0, 0, number, 2, "float32", "In[7], line 3", line)


def test_what_was_written_is_read_newest_first(tmp_path):
    path = protocol.receives_path(tmp_path, 5)
    book = ReceiveBook(path)
    assert protocol.read_receives(path) == []
    book.note(receive(1))
    book.note(receive(2, "dist.recv(größe, 0)"))
    assert protocol.read_receives(path) == [receive(2, "dist.recv(größe, 0)"), receive(1)]


def test_the_oldest_make_room(tmp_path):
    book = ReceiveBook(path := protocol.receives_path(tmp_path, 5))
    for number in range(3 * SLOTS + 1):
        book.note(receive(number))
    assert [r.number for r in protocol.read_receives(path)] == list(range(3 * SLOTS, 2 * SLOTS, -1))


def test_what_is_too_long_or_cut_off_or_not_there_is_left_out(tmp_path):
    book = ReceiveBook(path := protocol.receives_path(tmp_path, 5))
    book.note(receive(1, "x" * protocol.SLOT))
    book.note(receive(2))
    with open(path, "r+b") as file:
        file.seek(protocol.SLOT)
        file.write(b'[7, "half')
    assert protocol.read_receives(path) == [receive(2)]
    assert protocol.read_receives(protocol.receives_path(tmp_path, 6)) == []
