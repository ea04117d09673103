"""Know what torch's C++ writes: plain text, which nothing but these patterns tells apart.

A pattern that fits no more turns nothing off: what it should have hidden is shown. Tests on real
ranks make torch say each of these (``tests/ranks/test_faults.py``).
"""

from __future__ import annotations

import re

#: What a rank raises because another one has gone, or because its connections were shut: gloo,
#: NCCL and the store.
CONSEQUENCE = re.compile(
    r"Connection (closed|reset)|Broken pipe|Socket (closed|Timeout)|recvValue failed|"
    r"sendBytes failed|Failed to recv|Timed out waiting|Application timeout"
)

#: What ``init_process_group`` raises where there is a group already.
TWICE = "trying to initialize the default process group twice"

#: What torch's functions raise where there is no default group.
NO_GROUP = "Default process group has not been initialized"

#: What may be raised where a group is used that has ended.
OF_ENDED = re.compile(
    CONSEQUENCE.pattern
    + r"|This process group has ended|is not initialized in the world group map"
    + r"|is not registered, please create group|Could not resolve the process group"
    + r"|Invalid process group|not found in the list of process groups|_unshard_params_ctx"
)

#: What labkit makes of such an error.
BELONGS = "belongs to the process group that ended with"

#: A line of torch's own log: ``[rank1]:[E1121 14:36:05.7 ProcessGroupGloo.cpp:69] …``,
#: with the C++ stack that may follow.
LOG = re.compile(
    r"^(?:\[rank\d+\]:)?\[[EW]\d{4} .*\n?"
    r"(?:(?:Exception raised from|frame #\d+:|<omitting).*\n?)*",
    re.MULTILINE,
)

#: The C++ stack that follows a line of the log, without that line.
LOG_STACK = re.compile(r"(?<=\n)(?:(?:Exception raised from|frame #\d+:|<omitting).*\n?)+")

#: What begins the C++ stack in the message of an error.
STACKS = ("\nException raised from ", "\nC++ CapturedTraceback")
