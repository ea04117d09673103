"""Hold the cells in which a notebook of each peer starts two ranks and shows what they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"

#: One picture per rank, 48 by 32 pixels: without a library that draws, which no peer needs.
PICTURES = (
    "iVBORw0KGgoAAAANSUhEUgAAADAAAAAgAQMAAABuGmlfAAAAA1BMVEUARIjQDLzJAAAADElEQVR42mNgGN4AAADgAAFp"
    "/i1dAAAAAElFTkSuQmCC",
    "iVBORw0KGgoAAAANSUhEUgAAADAAAAAgAQMAAABuGmlfAAAAA1BMVEWZRFXarJHfAAAADElEQVR42mNgGN4AAADgAAFp"
    "/i1dAAAAAElFTkSuQmCC",
)
#: What each of two ranks runs; ``rank`` is there. The source has the pictures backwards, so that an
#: echo of it is none.
SHOW = f"""
import base64
from IPython.display import Image, display
picture = {tuple(picture[::-1] for picture in PICTURES)}[rank][::-1]
display(Image(base64.b64decode(picture)))
"""
STOP = """
secret = 40 + rank
if rank == 1:
    breakpoint()
print("went on")
"""


@dataclass(frozen=True)
class Cells:
    """How a notebook of one peer starts two ranks, and runs a piece of code on both."""

    start: Sequence[str]
    run: str  #: the cell, in which CODE stands for the code and TEXT for it as a string
    program: str = "in_kernel"

    def cell(self, code: str) -> str:
        """Return the cell that runs a piece of code on both ranks."""
        return self.run.replace("TEXT", repr(code)).replace("CODE", code.strip())


#: Cells that start two ranks.
STOCK = """
import ipyparallel as ipp
cluster = ipp.Cluster(n=2)
client = cluster.start_and_connect_sync()
client[:].scatter("rank", range(2), flatten=True)
client.activate()
"""
LAUNCH = """
import os, socket
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = str(probe.getsockname()[1])
def train(code):
    exec(code, {"rank": int(os.environ["LOCAL_RANK"])})
notebook_launcher(train, args=(TEXT,), num_processes=2, use_port=port)
"""
NBDISTRIBUTED = f"""
import sys
sys.path.insert(0, {str(PROGRAMS)!r})
from nbdistributed_magics import joined, wait_for
before = joined()
%dist_init -n 2
wait_for(before + 2)
"""
RAY = """
import ray
ray.init(num_cpus=2)
@ray.remote(num_cpus=1)
class Member:
    def __init__(self, rank):
        self.rank = rank
    def run(self, code):
        exec(code, {"rank": self.rank})
everyone = [Member.remote(rank) for rank in range(2)]
"""
MONARCH = """
from monarch.actor import Actor, current_rank, endpoint, this_host
class Member(Actor):
    @endpoint
    def run(self, code):
        exec(code, {"rank": current_rank().rank})
everyone = this_host().spawn_procs({"gpus": 2}).spawn("members", Member)
"""
