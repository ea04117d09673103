"""Train in ``%%px`` cells that are watched; answer with the CPU time that the watch took.

Argument: number of ranks. Each line on stdin says how many steps. The answer has the number of
cores, the wall-clock seconds of the training, and in seconds of CPU time what the thread that
answers the watch took on each rank, and the notebook's process while it followed.
"""

import json
import sys
import time
from pathlib import Path

import psutil
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.notebook import run

#: A rank looks at itself in the thread of its control channel, which does nothing else while a
#: cell runs: messages that come there are the watch's questions. Nothing is shown here, so there
#: are none of the board's.
CLOCKS = """
import time

def clocks():
    control = get_ipython().kernel.control_thread
    thread = time.clock_gettime(time.pthread_getcpuclockid(control.ident))
    return time.perf_counter(), thread
"""
TRAIN = """
before = clocks()
train({steps})
spent = [after - before for before, after in zip(before, clocks())]
"""


def count_following(seconds):
    """Add to a list the CPU time of each time that this process follows a cell.

    All threads count, those of ZeroMQ and of ipyparallel's client too; what waits takes none.
    """
    stock = run.follow

    def follow(*args, **options):
        began = time.process_time()
        try:
            return stock(*args, **options)
        finally:
            seconds.append(time.process_time() - began)

    run.follow = follow


if __name__ == "__main__":
    shell = InteractiveShell.instance()
    following = []
    with labkit.start(int(sys.argv[1])) as lab:
        model = Path(__file__).with_name("ddp_model.py").read_text()
        shell.run_cell_magic("px", "", model + CLOCKS)
        count_following(following)
        for line in sys.stdin:
            following.clear()
            shell.run_cell_magic("px", "", TRAIN.format(steps=int(line)))
            wall, thread = zip(*lab["spent"], strict=True)
            answer = {
                "cores": len(psutil.Process().cpu_affinity()),
                "wall": max(wall),
                "ranks": list(thread),
                "notebook": following[0],
            }
            print("BENCH", json.dumps(answer), flush=True)
