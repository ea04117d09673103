"""Know torch's threads by their names."""

from __future__ import annotations

#: The one that serves the store to other ranks.
STORE = "pt_tcpstore"
#: gloo's transport wakes up every few milliseconds, data or not. Data keeps it running.
POLLING = "gloo_tcp_loop"
#: Those of gloo's threads that run the collectives. Where these are and the polling one is not,
#: that one has no name (torch 2.11).
RUNNING = "pt_gloo_runloop"
