"""Start a lab whose gloo has the semantics of NCCL (see :mod:`tests.support.fake_nccl`)."""

from __future__ import annotations

import os
from typing import Any

import labkit

#: Switches the semantics on where their module is imported, with its options.
VARIABLE = "LABKIT_TEST_MANNERS"
MODULE = "tests.support.fake_nccl"


def start_on_fake_nccl(n: int, *, connect: bool = False, **options: Any) -> labkit.Lab:
    """Start ``n`` ranks of gloo that behave as NCCL does; ``options`` are ``labkit.start``'s.

    ``connect``: the first collective of a group waits for all, and spins.
    """
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "on connect" if connect else "on"
    try:
        return labkit.start(n, preload=[MODULE, *options.pop("preload", ())], **options)
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
