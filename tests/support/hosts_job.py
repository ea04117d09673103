"""What ranks do in ``test_torchrun_hosts``: say who they are, add up, time a link.

torchrun ... hosts_job.py FOLDER [lift]

Every rank writes FOLDER/RANK.json and its result of all_reduce, FOLDER/RANK.pt. With "lift" the
time is taken again when the first rank of each node has taken the limit off its host's link.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from labkit.hosts import commands

#: Of float32: 1 MB.
COUNT = 250_000
NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"]


def seconds(times):
    """Return the shortest of some times of all_reduce."""
    x = torch.ones(COUNT)
    taken = []
    for _ in range(times):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(x)
        taken.append(time.perf_counter() - began)
    return min(taken)


torch.set_num_threads(1)
folder, lift = Path(sys.argv[1]), sys.argv[2:] == ["lift"]
dist.init_process_group("gloo")
rank = dist.get_rank()
mine = torch.arange(1000) * (rank + 1)
dist.all_reduce(mine)
torch.save(mine, folder / f"{rank}.pt")
facts = {name: int(os.environ[name]) for name in NAMES}
facts |= {"host": socket.gethostname(), "master": os.environ["MASTER_ADDR"]}
if lift:
    facts["slow"] = seconds(2)
    if facts["LOCAL_RANK"] == 0:
        subprocess.run([commands.find("tc"), "qdisc", "del", "dev", "eth0", "root"], check=True)
    facts["fast"] = seconds(5)
(folder / f"{rank}.json").write_text(json.dumps(facts))
dist.destroy_process_group()
