"""Run one ipyparallel engine in a process that the warm process forked."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import zmq
from ipyparallel.engine.app import IPEngine
from traitlets import Bool, Unicode

from ..base import times
from ..wire import python_threads
from . import engine_internals, import_path
from .application import LabApplication, skip_unwritten


class Handshakes:
    """Count the connections that some sockets begin, and wait until they are made.

    ZeroMQ connects in a thread of its own, and drops what is sent to an engine before that.

    Parameters
    ----------
    connect
        What connects a socket with an address: ``connect(socket, url)``.
    """

    def __init__(self, connect: Callable[..., None]) -> None:
        self._connect = connect
        self._begun: dict[zmq.Socket, int] = {}

    def connect(self, socket: zmq.Socket, url: str, *arguments: Any, **named: Any) -> None:
        """Connect a socket, as the function does that was given."""
        socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)  # the same one each time
        self._begun[socket] = self._begun.get(socket, 0) + 1
        self._connect(socket, url, *arguments, **named)

    def wait(self, seconds: float) -> bool:
        """Wait until all connections are made, and watch them no longer; return whether they
        are."""
        deadline = time.monotonic() + seconds
        waits = [self._wait(socket, count, deadline) for socket, count in self._begun.items()]
        self._begun.clear()
        return all(waits)

    def _wait(self, socket: zmq.Socket, count: int, deadline: float) -> bool:
        with socket.get_monitor_socket() as events:
            while count and events.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                events.recv_multipart()
                count -= 1
            socket.disable_monitor()
        return not count


class LabEngine(LabApplication, IPEngine):
    """An engine without a nanny process: the warm process watches it instead.

    It answers signal requests itself, from its control thread, so ``Client.send_signal`` works
    as with a nanny; and it notes the id that the hub gave it, so that whoever sees it exit can
    take it off the hub's list.
    """

    name = "ipengine"
    id_file = Unicode(config=True, help="A link to make, whose target is the id that the hub gave.")
    says_ready = Bool(config=True, help="Whether to tell the hub when all is there: it listens.")

    def initialize(self, argv: list[str] | None = None) -> None:
        # IPython's packages warn of each other while an engine is made. Where the user has made
        # warnings errors, that is meant for cells, which run later.
        self._starting = contextlib.ExitStack()
        self._starting.enter_context(warnings.catch_warnings(action="ignore"))
        super().initialize(argv)

    def before_registration(self, connect: Callable[..., None]) -> Callable[..., None]:
        """Do what has to be done before sockets connect."""
        self._handshakes = Handshakes(connect)
        return self._handshakes.connect if self.says_ready else connect

    def after_registration(self, maybe_tunnel: Any) -> None:
        """Do what has to wait for the id that the hub gives."""
        self._starting.close()
        skip_unwritten(self.log)
        engine_internals.answer_control(self.kernel, "signal_request", self._signal_request)
        if self.id_file:
            with contextlib.suppress(OSError):
                # A link's target needs no room of its own: this works on a full disk too.
                os.symlink(str(self.id), self.id_file)
        if self.may_import_from_here():
            import_path.add_working_folder()
        if self.says_ready and self._handshakes.wait(times.ENGINE_CONNECTED.seconds()):
            engine_internals.say_ready(self)

    def start(self) -> None:
        """Run until told to stop. A task of a cell's that is left by ``sys.exit`` takes its event
        loop with it; here the loop goes on, and what awaits the task gets the error."""
        try:
            super().start()
        except SystemExit as error:
            while _is_from_users(error):
                try:
                    self.loop.start()
                    return
                except SystemExit as later:
                    error = later
            raise error from None

    def may_import_from_here(self) -> bool:
        """Return whether cells may import from the working folder: it is the notebook's."""
        return True

    def end_now(self) -> None:
        """End now: run exit handlers, but leave torch's and zmq's teardown to the system."""
        self.restore_output()
        engine_internals.run_exit_functions()
        os._exit(0)

    def _signal_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Send this process the signal that a client asks for."""
        sig = parent["content"]["sig"]
        signum = getattr(signal, sig) if isinstance(sig, str) else sig
        if signum == signal.SIGINT:
            # Before the reply: who has it may send the next request, which this is not meant for.
            self.obey(signum)
        self.session.send(stream, "signal_reply", {"status": "ok"}, parent=parent, ident=ident)
        if signum != signal.SIGINT:
            # The reply has to leave before a deadly signal arrives, or the client waits forever.
            engine_internals.call_later(self.kernel, 0.05, self.obey, signum)

    def obey(self, signum: int) -> None:
        """Send this process a signal."""
        os.kill(os.getpid(), signum)


engine_internals.on_registered(LabEngine, "before_registration", "after_registration")
engine_internals.on_sigterm(LabEngine, "end_now")


def _is_from_users(error: BaseException) -> bool:
    """Return whether an error came through code of the user's."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(not python_threads.package(frame.f_code.co_filename) for frame in frames)


def main(argv: list[str]) -> None:
    """Run an engine until it is told to stop."""
    app = LabEngine.instance(enable_nanny=False, max_heartbeat_misses=0)
    app.initialize(argv)
    app.start()
