"""Use a lab while another user of the host tries to get in; in a network of its own.

shared_machine_job.py OWNER STRANGER

Writes JSON: what the cells gave, what the stranger got (``tests.support.stranger``). The network
namespace keeps the stranger away from everything else that runs on this machine.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

SUM = "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\nprint(x.item())"
SUBGROUP = (
    "g = dist.new_group([0, 1])\ny = torch.tensor([rank + 1.0])\n"
    "dist.all_reduce(y, group=g)\nprint(y.item())\ndist.destroy_process_group(g)"
)
#: With the environment that the lab has set.
AGAIN = f"dist.destroy_process_group()\ndist.init_process_group('gloo')\n{SUM}"
AGENTS = """
from torch.distributed import rpc
import os
def who():
    return os.getpid()
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
pids = [rpc.rpc_sync(f"worker{r}", os.getpid) for r in range(world_size)]
print(len(set(pids)))
"""
CALLS = """
import time
began = time.monotonic()
count = 0
while time.monotonic() - began < 2:
    count += rpc.rpc_sync(f"worker{1 - rank}", max, (1, 0))
rpc.shutdown()
print(count > 0)
"""
MISS = "if rank:\n    dist.all_reduce(torch.ones(1))"


def enter_network() -> None:
    """Go where nobody else is; with a loopback interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def use(folder: str) -> None:
    """Do what a lab can do."""
    import labkit
    from tests.support.cells import finish_cell, send_cell

    def cell(code: str) -> list[str]:
        finished = finish_cell(send_cell(lab, code))
        assert finished.error is None, [outcome.error for outcome in finished.outcomes]
        return [outcome.stdout.strip() for outcome in finished.outcomes]

    results = {}
    for start in range(2):
        with labkit.start(2) as lab:
            results[f"start {start}"] = cell(SUM)
            if start:
                continue
            results["sub-group"] = cell(SUBGROUP)
            lab.reset()
            results["reset"] = cell(SUM)
            error = finish_cell(send_cell(lab, MISS)).error
            results["deadlock"] = [type(error).__name__]
            results["repair"] = cell(SUM)
            results["agents"] = cell(AGENTS)
            results["calls"] = cell(CALLS)
            lab.restart()
            results["restart"] = cell(SUM)
            results["again"], results["and again"] = cell(AGAIN), cell(AGAIN)
    print(json.dumps(results), flush=True)


def main(owner: int, stranger: int) -> None:
    """Start a stranger, let the owner use a lab, and tell what came of it."""
    enter_network()
    tries = subprocess.Popen(
        [sys.executable, "-m", "tests.support.stranger", str(stranger)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # torch's, of every store that it is not let into
        text=True,
    )
    assert tries.stdout is not None
    assert tries.stdout.readline() == "ready\n"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        os.chown(folder, owner, owner)
        used = subprocess.run(
            [*become(owner), sys.executable, "-m", "tests.support.shared_machine_job", "use"],
            env={**os.environ, "HOME": folder, "TMPDIR": folder, "XDG_RUNTIME_DIR": folder},
            capture_output=True,
            text=True,
            timeout=300,
        )
    got, _ = tries.communicate("")
    print(json.dumps({"used": used.stdout, "errors": used.stderr, "got": json.loads(got)}))


def become(user: int) -> list[str]:
    """Return the command that becomes a user, who may read what root's folders hold."""
    if user == os.geteuid():
        return []
    reads = "+dac_read_search,+dac_override"  # the libraries may be in root's home
    caps = [f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *caps]


if __name__ == "__main__":
    if sys.argv[1:] == ["use"]:
        use(os.environ["TMPDIR"])
    else:
        main(*map(int, sys.argv[1:]))
