"""What runs on a rank. Imported there (once, in the warm process), never in the notebook's kernel.

``identity``  who this process is, and the names that a cell finds: rank, world_size, device, …
``group``     open a store, join and leave the process group
``cells``     cell names, warnings and compact tracebacks
``control``   answer questions while the rank is busy
``calls``     run a function that came from the notebook; move variables
"""

from . import calls, cells, control, group, identity

__all__ = ["calls", "cells", "control", "group", "identity"]
