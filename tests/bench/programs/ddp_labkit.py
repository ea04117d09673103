"""Train in ``%%px`` cells; for every line on stdin, a number of steps, answer with images/s.

Argument: number of ranks. The model's file is one cell, a stretch of training another.
"""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

import labkit

if __name__ == "__main__":
    shell = InteractiveShell.instance()
    with labkit.start(int(sys.argv[1])) as lab:
        model = Path(__file__).with_name("ddp_model.py").read_text()
        shell.run_cell_magic("px", "", model)
        for line in sys.stdin:
            shell.run_cell_magic("px", "", f"images_per_second = train({int(line)})")
            print("BENCH", json.dumps(lab["images_per_second"][0]), flush=True)
