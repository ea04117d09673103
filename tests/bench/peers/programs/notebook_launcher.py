"""Run a function on ranks with accelerate's ``notebook_launcher``.

Arguments: number of ranks, and what the function does (see ``protocol.play``). The ranks end with
the function: an empty cell is a launch of an empty function.
"""

import sys

from accelerate import notebook_launcher
from protocol import free_port, play, serve


def train(what):
    """Be one rank: the Accelerator forms the group."""
    from accelerate import Accelerator

    Accelerator(cpu=True)
    play(what)


def nothing():
    """Do nothing."""


def launch(function, *args):
    """Call the launcher as a cell does; a port of its own, as others may use the default."""
    notebook_launcher(function, args=args, num_processes=ranks, use_port=str(free_port()))


if __name__ == "__main__":
    ranks, what = int(sys.argv[1]), sys.argv[2]
    launch(train, what)
    serve(lambda: launch(nothing), lambda: None)
