"""Break cells; for every line on stdin, the name of a fault, answer with two numbers of seconds:
from certain to declared, and from declared to the next all_reduce done.

Argument: number of ranks.
"""

import json
import sys
import time

import labkit
from labkit.runtime import request

FAULTS = {
    "skip": "if rank != 2:\n    moment = time.time()\n    dist.all_reduce(x)\nmoment = time.time()",
    "send": "moment = time.time()\ndist.send(x, (rank + 1) % world_size)",
    "order": "moment = time.time()\ndist.barrier() if rank == 1 else dist.all_reduce(x)",
}


def run(lab, code):
    pending = request.cell(lab._group, list(range(len(lab))), code)
    pending.wait()
    return pending


if __name__ == "__main__":
    with labkit.start(int(sys.argv[1])) as lab:
        run(lab, "import time\nx = torch.ones(4)")
        for line in sys.stdin:
            pending = run(lab, FAULTS[line.strip()])
            declared = pending.ending.moment
            run(lab, "y = torch.ones(1)\ndist.all_reduce(y)")
            usable = time.time()
            assert pending.ending.kind == "deadlock"
            assert lab["y"] == [len(lab)] * len(lab)
            certain = max(lab["moment"])
            print("BENCH", json.dumps([declared - certain, usable - declared]), flush=True)
