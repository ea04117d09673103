"""Train in ``%%px`` cells, shown live or not; answer with images/s.

Argument: number of ranks. Each line on stdin says "shown" or "hidden", and how many steps. The
ranks are watched for deadlocks both times.
"""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.notebook import board, live


class Shown:
    """Stands in for a notebook's page: draws all that is shown there, and throws it away."""

    def show(self, out, err, states, seconds, suspicion=None):
        board.output_html(out, err)
        board.board_html(states, seconds)
        board.suspicion_html(suspicion)

    def clear(self, *, wait):
        pass


if __name__ == "__main__":
    shell = InteractiveShell.instance()
    screens = {"shown": Shown, "hidden": lambda: None}
    with labkit.start(int(sys.argv[1])) as lab:
        model = Path(__file__).with_name("ddp_model.py").read_text()
        shell.run_cell_magic("px", "", model)
        for line in sys.stdin:
            kind, steps = line.split()
            live.screen = screens[kind]
            shell.run_cell_magic("px", "", f"images_per_second = train({int(steps)})")
            print("BENCH", json.dumps(lab["images_per_second"][0]), flush=True)
