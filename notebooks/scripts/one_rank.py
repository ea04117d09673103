"""Say which rank this is, and let "one" save, chosen by its local rank and by its rank.

    torchrun --nnodes=2 ... one_rank.py FOLDER

It needs no torch, so it starts at once.
"""

import os
import sys

folder, rank, local_rank = sys.argv[1], int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])


def save(name, mode="a"):
    with open(f"{folder}/{name}", mode) as file:
        file.write(f"from rank {rank}\n")


if local_rank == 0:
    save("wrong.txt")  # once on every node
if rank == 0:
    save("right.txt")  # once
who = f"local rank {local_rank} is RANK {rank} of {os.environ['WORLD_SIZE']}"
print(f"{who}, GPUs {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}\n", end="")
save(f"wrong-part-{local_rank}.txt", "w")  # as many files as a node has ranks
save(f"right-part-{rank}.txt", "w")  # a file for each rank
