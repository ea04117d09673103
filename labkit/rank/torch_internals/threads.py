"""Know torch's threads by their names."""

from __future__ import annotations

#: The one that serves the store to other ranks.
STORE = "pt_tcpstore"
#: gloo's transport wakes up every few milliseconds, data or not. Data keeps it running.
POLLING = "gloo_tcp_loop"
#: Those of gloo's threads that run the collectives.
RUNNING = "pt_gloo_runloop"
#: NCCL's threads that look at the clock now and then, whether there is work or not.
WATCHING = ("pt_nccl_watchdg", "pt_nccl_heartbt")
