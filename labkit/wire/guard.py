"""How a rank registers a thread with the guard of its connections (``launch/connection_guard``)."""

from __future__ import annotations

import struct

#: Environment variable of a rank: the number of the socket where it registers, and the guard's
#: process.
ENV = "LABKIT_GUARD"
#: A registration: the rank's process, the number of a file there, which the guard tries to have
#: as well, and the number of the system call accept4. The files sent with it: the notifications
#: of the thread's filter, the process, a pipe for the answer.
REGISTRATION = struct.Struct("=iii")
#: The answers: its connections are looked at from now on; this system does not let the guard.
WELCOME, REFUSED = b"+", b"-"
