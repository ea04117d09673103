"""Send a tensor from the notebook to its ranks and back. Argument: number of ranks.

For every line on stdin, ``shared BYTES`` or ``messages BYTES``, answer with the seconds of
``lab["x"] = tensor`` and of ``lab["x"]``: through shared memory, where it is large enough, or in
messages, as to ranks on another host.
"""

import json
import sys
import time
from dataclasses import replace

import torch

import labkit
from labkit.notebook.lab import session_of

with labkit.start(int(sys.argv[1])) as lab:
    cluster = session_of(lab).cluster
    for line in sys.stdin:
        way, size = line.split()
        cluster.places = [replace(p, shares_memory=way == "shared") for p in cluster.places]
        tensor = torch.ones(int(size), dtype=torch.uint8)
        began = time.perf_counter()
        lab["x"] = tensor
        there = time.perf_counter()
        found = lab["x"]
        back = time.perf_counter()
        assert all(x.equal(tensor) for x in found)
        del found, lab["x"]
        print("BENCH", json.dumps([there - began, back - there]), flush=True)
