"""Train in ``%%px`` cells. Argument: number of ranks.

Each line on stdin says how, and how many steps. "shown" (live, as in a notebook) and "hidden":
answer with images/s. "watched" (hidden), "drawn" and "undrawn" (shown, with and without
``lab.watch``): answer with the number of cores, the wall-clock seconds of the training, and in
seconds of CPU time what the thread that answers the notebook took on each rank, and the notebook's
process while it followed. The ranks are watched for deadlocks each time.
"""

import json
import sys
import time
from pathlib import Path

import psutil
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.notebook import board, live, run, watch

#: A rank looks at itself in the thread of its control channel, which does nothing else while a
#: cell runs: messages that come there are the watch's questions. Nothing is shown while they are
#: counted, so there are none of the board's.
CLOCKS = """
import time

def clocks():
    control = get_ipython().kernel.control_thread
    thread = time.clock_gettime(time.pthread_getcpuclockid(control.ident))
    return time.perf_counter(), thread
"""
TRAIN = """
before = clocks()
images_per_second = train({steps})
spent = [after - before for before, after in zip(before, clocks())]
"""


class Shown:
    """Stands in for a notebook's page: draws all that is shown there, and throws it away."""

    def show(self, out, err, states, seconds, suspicion=None):
        board.output_html(out, err)
        board.board_html(states, seconds)
        board.suspicion_html(suspicion)

    def show_pictures(self, html):
        pass

    def clear(self, *, wait):
        pass


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
            how, steps = line.split()
            live.screen = Shown if how in ("shown", "drawn", "undrawn") else lambda: None
            watch.shows_pictures = lambda drawn=how == "drawn": drawn
            lab.watch(*["losses"] * (how == "drawn"))
            following.clear()
            shell.run_cell_magic("px", "", TRAIN.format(steps=steps))
            wall, thread = zip(*lab["spent"], strict=True)
            watched = {
                "cores": len(psutil.Process().cpu_affinity()),
                "wall": max(wall),
                "ranks": list(thread),
                "notebook": following[0],
            }
            answer = lab["images_per_second"][0] if how in ("shown", "hidden") else watched
            print("BENCH", json.dumps(answer), flush=True)
