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

#: A line of torch's own log: ``[rank1]:[E1121 14:36:05.7 ProcessGroupGloo.cpp:69] …``,
#: with the C++ stack that may follow.
LOG = re.compile(
    r"^(?:\[rank\d+\]:)?\[[EW]\d{4} .*\n?"
    r"(?:(?:Exception raised from|frame #\d+:|<omitting).*\n?)*",
    re.MULTILINE,
)

#: What begins the C++ stack in the message of an error.
STACKS = ("\nException raised from ", "\nC++ CapturedTraceback")
