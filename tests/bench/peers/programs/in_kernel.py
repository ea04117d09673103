"""Run cells in a notebook's kernel, and answer what came of the last one of each kind.

Reads a line of JSON from stdin: ``start``, cells that start two ranks; ``show``, a cell in which
each rank displays a picture; ``stop``, one in which rank 1 calls ``breakpoint()``; ``replies``,
what a person types at its prompts. Answers with what a notebook gets of both (``watch``).
"""

import json
import sys
import time
from queue import Empty

from jupyter_client.manager import start_new_kernel
from protocol import answer

START_SECONDS, SHOW_SECONDS = 120, 40
#: Seconds without a word after which a cell that has ended has said all.
REST_SECONDS = 1.5


def watch(client, code, seconds, replies=()):
    """Run a cell; return its messages, and the prompts for input, to which ``replies`` are given.

    Output that comes when the cell has ended counts too, as it does in a notebook.
    """
    number = client.execute(code, allow_stdin=True)
    messages, prompts, replies, ended = [], [], list(replies), False
    began = last = time.monotonic()
    while time.monotonic() - began < seconds and not (
        ended and time.monotonic() - last > REST_SECONDS
    ):
        try:
            message = client.get_iopub_msg(timeout=0.1)
        except Empty:
            message = None
        if message:
            last = time.monotonic()
            messages.append({"type": message["msg_type"], "content": message["content"]})
            mine = message["parent_header"].get("msg_id") == number
            ended = ended or (mine and message["content"].get("execution_state") == "idle")
        if client.stdin_channel.msg_ready():
            prompts.append(client.get_stdin_msg(timeout=1)["content"]["prompt"])
            client.input(replies.pop(0) if replies else "")
            last = time.monotonic()
    return {"messages": messages, "prompts": prompts, "ended": ended}


if __name__ == "__main__":
    cells = json.loads(sys.stdin.readline())
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for cell in cells["start"]:
            done = watch(client, cell, START_SECONDS)
            failed = [m["content"] for m in done["messages"] if m["type"] == "error"]
            if failed or not done["ended"]:
                sys.exit(f"cannot start: {failed or cell}")
        answer(watch(client, cells["show"], SHOW_SECONDS))
        answer(watch(client, cells["stop"], SHOW_SECONDS, cells["replies"]))
    finally:
        manager.shutdown_kernel(now=True)
