"""Run cells on the processes of jupyter-distributed. Argument: number of ranks.

Its page in JupyterLab speaks to the server, and so does this program, in the same order (version
0.1.1, ``static/209*.js``): a notebook that was saved with a number of processes opens, so its
kernel starts, a launch of that many is prepared, the kernel restarts, the launch is committed, and
cells go over the WebSocket. The server is there before the clock starts, as it is for everybody.
"""

import sys
import time

import psutil
from front_end import Kernel, Server
from protocol import answer, serve

RANKS = "application/vnd.jupyter-distributed.rank+json"
FIRST = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(1)
dist.all_reduce(x)
moment = time.time()
if rank == 0:
    print(moment, x.item())
"""
SKIP = "if rank != 1:\n    dist.all_reduce(x)"


def open_notebook(server, ranks):
    """Open a notebook that was saved with this number of processes."""
    kernel = Kernel(server)
    path = f"jupyter-distributed/kernels/{kernel.id}"
    found = server.ask("GET", path)
    assert not found["proxied"], found
    prepared = server.ask("POST", path, {"action": "prepare", "world_size": ranks})
    kernel.restart()
    commit = {"action": "commit", "restart_token": prepared["restart_token"]}
    assert server.ask("POST", path, commit)["world_size"] == ranks
    # What the ranks write while a cell runs comes through this comm.
    target = {"target_name": "jupyter.distributed.rank_updates", "comm_id": "bench", "data": {}}
    kernel.send("comm_open", target)
    return kernel


def run(kernel, code):
    """Run a cell, print what its reader sees; return the ranks' outputs as they are shown last."""
    shown = {}

    def heed(message):
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.update(content["data"])
            print(content["data"].get("text/plain", ""), flush=True)
        elif message["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif message["msg_type"] == "comm_msg":
            for rank in content["data"].get("payload", {}).get("rank_updates", []):
                for patch in rank["patches"]:
                    print(patch.get("text") or patch.get("output") or "", flush=True)

    reply = kernel.execute(code, heed)
    if reply["status"] != "ok":
        sys.exit("\n".join([f"{reply['ename']}: {reply['evalue']}", *reply["traceback"]]))
    return shown.get(RANKS, {}).get("ranks", [])


def where(server):
    """Return the process numbers of the notebook's kernel, and of what is no part of it."""
    (kernel,) = psutil.Process(server.process.pid).children()
    return {"kernel": kernel.pid, "beside": [server.process.pid, psutil.Process().pid]}


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    server = Server()
    answer("the server is there")
    sys.stdin.readline()
    answer(time.time())
    kernel = open_notebook(server, ranks)
    said = run(kernel, FIRST)[0]["outputs"][0]["content"]["text"]
    moment, total = map(float, said.split())
    assert total == ranks, total
    answer(moment)
    serve(lambda: run(kernel, "pass"), lambda: run(kernel, SKIP), kernel=lambda: where(server))
    server.process.terminate()
