"""Break cells; for every line on stdin, the name of a fault, answer with two numbers of seconds:
from certain to declared, and from declared to the next all_reduce done.

Argument: number of ranks.
"""

import json
import sys
import time

import labkit
from labkit.notebook.lab import session_of
from labkit.runtime import request
from labkit.runtime.finish import finish
from labkit.runtime.follow import follow

FAULTS = {
    "skip": "if rank != 2:\n    moment = time.time()\n    dist.all_reduce(x)\nmoment = time.time()",
    "send": "moment = time.time()\ndist.send(x, (rank + 1) % world_size)",
    "order": "moment = time.time()\ndist.barrier() if rank == 1 else dist.all_reduce(x)",
}


def run(lab, code):
    """Run a cell to its end, whatever that is; return how it ended."""
    sent = request.cell(session_of(lab).group, range(len(lab)), code)
    return finish(sent, follow(sent), tolerate=True).ending


if __name__ == "__main__":
    with labkit.start(int(sys.argv[1])) as lab:
        run(lab, "import time\nx = torch.ones(4)")
        for line in sys.stdin:
            ending = run(lab, FAULTS[line.strip()])
            declared = ending.moment
            run(lab, "y = torch.ones(1)\ndist.all_reduce(y)")
            usable = time.time()
            assert ending.kind == "deadlock"
            assert lab["y"] == [len(lab)] * len(lab)
            certain = max(lab["moment"])
            print("BENCH", json.dumps([declared - certain, usable - declared]), flush=True)
