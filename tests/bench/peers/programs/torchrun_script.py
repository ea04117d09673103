"""Be one rank of torchrun's. Argument: what to do (see ``protocol.play``)."""

import sys

import torch.distributed as dist
from protocol import play

if __name__ == "__main__":
    dist.init_process_group("gloo")
    play(sys.argv[1])
