"""Do in jupyter-distributed what ``in_kernel`` does, and hold a session of JupyterLab's debugger.

Reads the same line, and answers once more: what ``debug`` returns.
"""

import json
import sys

from front_end import Server
from jupyter_processes import open_notebook
from protocol import answer


def watch(kernel, code):
    """Run a cell; return its messages in the form of ``in_kernel.watch``."""
    messages = []
    kernel.execute(
        code, lambda m: messages.append({"type": m["msg_type"], "content": m["content"]})
    )
    prompts = [m["content"]["prompt"] for m in messages if m["type"] == "input_request"]
    return {"messages": messages, "prompts": prompts, "ended": True}


class Debugger:
    """JupyterLab's debugger: the Debug Adapter Protocol over a kernel's control channel."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.number = 0

    def ask(self, command, **arguments):
        """Send a request; return the body of its response."""
        self.number += 1
        content = {"type": "request", "seq": self.number, "command": command}
        reply = self.kernel.request("debug_request", {**content, "arguments": arguments}, "control")
        if not reply.get("success"):
            sys.exit(f"{command}: {reply.get('message') or reply}")
        return reply.get("body", {})

    def start(self):
        """Attach, as the button with the bug does."""
        self.ask("initialize", clientID="jupyterlab", adapterID="", pathFormat="path",
                 linesStartAt1=True, columnsStartAt1=True)  # fmt: skip
        self.ask("attach")

    def set_breakpoint(self, code, line):
        """Set a breakpoint in a cell, as a click beside its line does."""
        path = self.ask("dumpCell", code=code)["sourcePath"]
        self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line}])
        self.ask("configurationDone")

    def wait_for_stops(self, count):
        """Wait until so many threads have stopped; return their numbers and names."""
        stopped = 0
        while stopped < count:
            stopped += self.kernel.receive()["content"].get("event") == "stopped"
        there, threads = self.ask("debugInfo")["stoppedThreads"], self.ask("threads")["threads"]
        return {thread["id"]: thread["name"] for thread in threads if thread["id"] in there}

    def evaluate(self, thread, expression):
        """Evaluate an expression in the frame in which a thread has stopped."""
        frame = self.ask("stackTrace", threadId=thread)["stackFrames"][0]["id"]
        return self.ask("evaluate", expression=expression, frameId=frame, context="repl")["result"]


def debug(kernel):
    """Stop both ranks in a cell; return the value that each stopped thread holds, by its name."""
    code = "secret = 40 + rank\nsecret += 0\n"
    debugger = Debugger(kernel)
    debugger.start()
    debugger.set_breakpoint(code, 2)
    kernel.send("execute_request", {"code": code, "silent": False, "allow_stdin": True})
    threads = debugger.wait_for_stops(2)
    held = {name: debugger.evaluate(thread, "secret") for thread, name in threads.items()}
    debugger.ask("continue", threadId=next(iter(threads)))
    debugger.ask("disconnect", restart=False, terminateDebuggee=False)
    return held


if __name__ == "__main__":
    cells = json.loads(sys.stdin.readline())
    server = Server()
    kernel = open_notebook(server, 2)
    for cell in cells["start"]:
        watch(kernel, cell)
    answer(watch(kernel, cells["show"]))
    answer(watch(kernel, cells["stop"]))
    answer(debug(kernel))
    server.process.terminate()
