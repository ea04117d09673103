"""What notebook and ranks say to each other."""

from __future__ import annotations

#: Collectives in which one rank gives to the others, or takes from them: one end can finish
#: though another rank has not come.
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")
ROOTED = FROM_ROOT + TO_ROOT

#: What a goal of an exercise can count, per rank, while the answer runs.
MEASURES = ("messages sent", "bytes sent", "collectives")
