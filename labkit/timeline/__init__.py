"""Record what every rank does and when, and lay it out on one clock: ``lab.timeline(…)``.

``request``    ask the ranks to record a function or a cell
``recording``  what one rank sends back
``sort``       tell computing from communication among the profiler's events
``clocks``     let ranks begin together; compare the clocks of hosts
``merge``      put the ranks' recordings on one clock, and see who waited for whom
``result``     the Timeline: shares, overlap, figure
``trace``      write it for Perfetto
``intervals``  add up stretches of time

What runs on a rank is ``labkit.rank.profile``. Nothing here imports torch; ``request`` belongs to
the notebook's kernel, ``recording``, ``sort`` and ``clocks`` are used by the ranks.
"""

from ..wire.recording import KINDS, Span
from .result import Timeline

__all__ = ["KINDS", "Span", "Timeline"]
