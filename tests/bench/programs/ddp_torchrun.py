"""Train under torchrun; for every line on stdin, a number of steps, rank 0 answers with images/s.

Between two stretches rank 0 waits for a line and the others for rank 0: none of them computes.
"""

import json
import sys

import torch
import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    from ddp_model import train

    while True:
        line = sys.stdin.readline() if dist.get_rank() == 0 else ""
        steps = torch.tensor([int(line or 0)])
        dist.broadcast(steps, 0)
        if not steps.item():
            break
        speed = train(steps.item())
        if dist.get_rank() == 0:
            print("BENCH", json.dumps(speed), flush=True)
    dist.destroy_process_group()
