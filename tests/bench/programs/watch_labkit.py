"""Train in ``%%px`` cells, watched or not, shown on a board or not; answer with images/s.

Argument: number of ranks. Each line on stdin says "watched", "unwatched" or "shown", and how many
steps.
"""

import concurrent.futures
import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.notebook import board, live
from labkit.runtime import request


class Blind:
    """Stands in for the watcher: waits for the replies and asks nobody."""

    def __init__(self, cluster, asked):
        pass

    def look(self, replies, failures, seconds):
        concurrent.futures.wait(replies, seconds, return_when=concurrent.futures.FIRST_COMPLETED)

    def waits(self):
        return {}


class Shown:
    """Stands in for a notebook's page: draws all that is shown there, and throws it away."""

    def show(self, out, err, states, seconds):
        board.output_html(out, err)
        board.board_html(states, seconds)

    def clear(self, *, wait):
        pass


if __name__ == "__main__":
    shell = InteractiveShell.instance()
    watchers = {"watched": request.Watcher, "unwatched": Blind, "shown": request.Watcher}
    with labkit.start(int(sys.argv[1])) as lab:
        model = Path(__file__).with_name("ddp_model.py").read_text()
        shell.run_cell_magic("px", "", model)
        for line in sys.stdin:
            kind, steps = line.split()
            request.Watcher = watchers[kind]
            live.screen = Shown if kind == "shown" else lambda: None
            shell.run_cell_magic("px", "", f"images_per_second = train({int(steps)})")
            print("BENCH", json.dumps(lab["images_per_second"][0]), flush=True)
