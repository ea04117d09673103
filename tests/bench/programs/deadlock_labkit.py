"""Break and stop cells; answer every line on stdin.

The name of a fault: two numbers of seconds, from certain to declared, and from declared to the next
all_reduce done. The name of some work: the seconds from the press of the stop button, when all
ranks are seen at work, to the end of the cell.

Argument: number of ranks.
"""

import json
import os
import signal
import sys
import time

import labkit
from labkit.notebook.lab import session_of
from labkit.runtime import request
from labkit.runtime.follow import finish, follow

FAULTS = {
    "skip": "if rank != 2:\n    moment = time.time()\n    dist.all_reduce(x)\nmoment = time.time()",
    "send": "moment = time.time()\ndist.send(x, (rank + 1) % world_size)",
    "order": "moment = time.time()\ndist.barrier() if rank == 1 else dist.all_reduce(x)",
}
#: The cell, and how many ranks wait for others in it.
WORK = {
    "compute": ("while True:\n    pass", 0),
    "sleep": ("time.sleep(1000)", 0),
    "wait": ("if rank == 2:\n    time.sleep(1000)\ndist.barrier()", 3),
}


def run(lab, code, on_tick=None):
    """Run a cell to its end, whatever that is; return how it ended."""
    sent = request.cell(session_of(lab).group, range(len(lab)), code)
    return finish(sent, follow(sent, on_tick=on_tick), tolerate=True).ending


def use(lab):
    """Return when an all_reduce of all ranks is done."""
    run(lab, "y = torch.ones(1)\ndist.all_reduce(y)")
    usable = time.time()
    assert lab["y"] == [len(lab)] * len(lab)
    return usable


def break_cell(lab, name):
    ending = run(lab, FAULTS[name])
    declared = ending.moment
    usable = use(lab)
    assert ending.kind == "deadlock"
    certain = max(lab["moment"])
    return [declared - certain, usable - declared]


def stop_cell(lab, name):
    code, waits = WORK[name]
    pressed = []

    def press(texts, look, suspicion):
        states = [state.state for state in look()]
        if not pressed and "idle" not in states and states.count("waiting") == waits:
            pressed.append(time.time())
            os.kill(os.getpid(), signal.SIGINT)

    ending = run(lab, code, press)
    back = time.time()
    assert (ending.kind, list(ending.still)) == ("interrupted", [])
    use(lab)
    return back - pressed[0]


if __name__ == "__main__":
    with labkit.start(int(sys.argv[1])) as lab:
        run(lab, "import time\nx = torch.ones(4)")
        for line in map(str.strip, sys.stdin):
            answer = break_cell(lab, line) if line in FAULTS else stop_cell(lab, line)
            print("BENCH", json.dumps(answer), flush=True)
