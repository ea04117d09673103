"""Write down each receive before torch posts it: the process may not live to tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..wire.last_receives import Book, Receive, path_of
from ..wire.protocol import RECORD_FOLDER
from .observe import call_details, p2p_record
from .torch_internals.groups import ProcessGroup

_book: Book | None = None


def install() -> None:
    """Begin to do so, after the record of messages has been installed and where there is a
    folder for it."""
    global _book
    folder = os.environ.get(RECORD_FOLDER)
    if _book is not None or not folder or "recv" not in p2p_record.stock:
        return
    try:
        _book = Book(path_of(folder, os.getpid()))
    except OSError:  # no room: the cause of a death is then less exact
        return
    stock_recv, stock_any = p2p_record.stock["recv"], p2p_record.stock["recv_anysource"]

    def recv(group: ProcessGroup, tensors: Any, peer: int, tag: int) -> Any:
        _note(group, "recv", tensors, peer, tag)
        return stock_recv(group, tensors, peer, tag)

    def recv_anysource(group: ProcessGroup, tensors: Any, tag: int) -> Any:
        _note(group, "recv_any", tensors, -1, tag)
        return stock_any(group, tensors, tag)

    p2p_record.stock.update(recv=recv, recv_anysource=recv_anysource)


def _note(
    group: ProcessGroup, kind: str, tensors: Sequence[torch.Tensor], peer: int, tag: int
) -> None:
    assert _book is not None
    try:
        world = dist.get_global_rank(group, peer) if peer >= 0 else -1
    except (RuntimeError, ValueError):  # a group that torch does not list
        return
    counted = p2p_record.posted.get(group)
    tag = p2p_record.tag_of(group, tensors, tag)
    number = 1 + (counted[kind, peer, tag] if counted is not None else 0)
    dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
    place = call_details.describe(call_details.find_place())
    count = sum(t.numel() for t in tensors)
    _book.note(Receive(world, tag, number, count, dtype, *place))
