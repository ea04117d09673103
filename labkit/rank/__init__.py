"""What runs on a rank. Imported there (once, in the warm process), never in the notebook's kernel.

``identity``  who this process is, and the names that a cell finds: rank, world_size, device, …
``group``     open a store, join and leave the process group
``cells``     cell names, warnings and compact tracebacks
``control``   answer questions while the rank is busy
``usage``     read memory and GPU use
``calls``     run a function that came from the notebook; move variables
``profile``   record what this rank does and when
``marks``     mark its forwards and backwards meanwhile
``trial``     try an answer to an exercise
``counting``  count what is sent meanwhile, and refuse what the exercise forbids

and, for ranks that wait for one another:

``record``    count sends, receives and monitored barriers
``recorder``  read torch's flight recorder, which has the collectives
``waits``     tell from its frames what a blocked rank waits for
``idle``      tell whether the process stands still
``looker``    look, ten times a second, while somebody wants to know
``sockets``   free a rank that is blocked
"""

from . import (
    calls,
    cells,
    control,
    counting,
    group,
    identity,
    idle,
    looker,
    marks,
    profile,
    record,
    recorder,
    sockets,
    trial,
    usage,
    waits,
)

__all__ = [
    "calls",
    "cells",
    "control",
    "counting",
    "group",
    "identity",
    "idle",
    "looker",
    "marks",
    "profile",
    "record",
    "recorder",
    "sockets",
    "trial",
    "usage",
    "waits",
]
