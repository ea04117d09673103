"""Run one rank that one of ipyparallel's own launchers has started, here or on another host.

Takes the place of ``python -m ipyparallel.engine``, as two processes. The first imports nothing
heavy: it waits for the second, the rank, and tells the controller how it ended (in the original
that is the task of a "nanny", which imports everything once more and does not know the exit code).

Nobody here is a child of the notebook's kernel, so the rank ends with the controller, which in
turn ends with the kernel: nothing lives on, on any host.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from typing import Any

from ..base import times, trust
from ..base.errors import StartError
from ..wire.processes import end_with_parent
from ..wire.protocol import REMOTE_FOLDER, SHARED_WORK, WORK_FOLDER
from .exit_notice import unregister
from .private_folder import PrivateFolder, home_variables, sweep

#: Where ipyparallel's launchers name the folder of IPython's profile.
PROFILE = "IPP_PROFILE_DIR"

#: What a rank exits with when the controller knows of its end, or has gone itself.
ALONE = 75


def main(argv: list[str]) -> int:
    """Start the rank and wait for it; return what the launcher is to see as exit code."""
    # ipyparallel's MPI launcher adds this: it would need mpi4py, for which a rank has no use.
    argv = [arg for arg in argv if arg != "--mpi"]
    try:
        lock = _lock_folder()
        own = _choose_profile(argv)
    except StartError as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 1
    registered, registration = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _run(argv, registration, parent)
    os.close(registration)
    code = _wait(child)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # its own session: everything it started
    _remove_folder(lock)  # before what takes longer: there may be no time for it
    if own is not None:
        own.remove()
    about = os.read(registered, 1 << 16)
    if not about:
        return code if code > 0 else 1
    if code != ALONE:
        facts = json.loads(about)
        unregister(facts["info"], {facts["engine"]: code})
    # Else MPI and Slurm would end the other ranks too, and the learner's variables with them.
    return 0


# -- the first process --------------------------------------------------------------------------


def _wait(child: int) -> int:
    """Wait for the rank; hand on SIGTERM, and see to it that it has an effect."""

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    def stop(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, times.EXTERNAL_TERMINATED.seconds())

    signal.signal(signal.SIGALRM, kill)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _lock_folder() -> int | None:
    """Record that this rank uses the folder, which ranks of one lab on this host share.

    Raises
    ------
    StartError
        If somebody else could have laid it.
    """
    import fcntl

    if REMOTE_FOLDER not in os.environ:
        return None
    folder = os.environ[REMOTE_FOLDER] = os.path.abspath(os.environ[REMOTE_FOLDER])
    if why := trust.unsafe_reason(folder):
        raise StartError(f"A rank cannot use the folder {folder}: {why}.")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except OSError:
        return None
    return lock


def _choose_profile(argv: list[str]) -> PrivateFolder | None:
    """Choose IPython's profile of this rank: what is in there is run.

    The launcher names one on the notebook's host. Where that is another host, everybody can make
    a folder of that name, so this rank then makes one of its own, which is returned.

    Raises
    ------
    StartError
        If the arguments name one that somebody else could have laid.
    """
    options = ("--profile-dir=", "--ProfileDir.location=")
    named = [arg.partition("=")[2] for arg in argv if arg.startswith(options)]
    for folder in named:
        if why := trust.unsafe_reason(folder):
            raise StartError(f"A rank cannot use the profile {folder}: {why}.")
    told = os.environ.get(PROFILE)
    if named:
        return None
    if told and os.path.isdir(told) and not trust.unsafe_reason(told):
        os.environ[PROFILE] = os.path.abspath(told)  # before the working folder changes
        return None
    sweep()
    own = PrivateFolder(sockets=False)
    profile = own.path / "profile"
    profile.mkdir(mode=0o700)
    os.environ[PROFILE] = str(profile)
    os.environ.update(home_variables(own.path))
    return own


def _remove_folder(lock: int | None) -> None:
    """Remove the folder unless another rank uses it."""
    import fcntl

    if lock is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.environ[REMOTE_FOLDER], ignore_errors=True)


# -- the rank -----------------------------------------------------------------------------------


def _run(argv: list[str], registration: int, parent: int) -> None:
    """Be the rank; never returns."""
    code = 1
    try:
        from .fork_server import import_without_debugger

        faulthandler.dump_traceback_later(times.REGISTRATION_STUCK)
        end_with_parent(parent)
        os.setsid()
        _enter_work_folder()
        from .zygote_client import PRELOAD

        import_without_debugger()
        for module in PRELOAD:  # before the controller counts this rank as ready
            importlib.import_module(module)
        engine = _engine_class()
        app = engine.instance(
            enable_nanny=False, max_heartbeat_misses=0, timeout=times.REGISTERED, log_level=30
        )
        app.registration = registration
        app.initialize(argv)
        app.start()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _enter_work_folder() -> None:
    """Go to the notebook's folder, where this host has it."""
    folder = os.environ.get(WORK_FOLDER)
    if folder is None:
        return
    # The notebook is in a folder of the user alone: one that others can write to is another one.
    if os.environ.get(SHARED_WORK) or not trust.unsafe_reason(folder):
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _engine_class() -> Any:
    """Make the class of the engine; ipyparallel is imported in the rank only."""
    from .engine import LabEngine

    class RemoteEngine(LabEngine):
        """An engine that ends when its controller has gone."""

        registration = -1  # where to write as whom the controller knows this rank

        def may_import_from_here(self) -> bool:
            """Not where a host without the notebook's folder has put this rank, such as /tmp."""
            here = os.getcwd()
            shared = os.environ.get(SHARED_WORK) and here == os.environ.get(WORK_FOLDER)
            return bool(shared) or not trust.unsafe_reason(here)

        def obey(self, signum: int) -> None:
            if signum == signal.SIGKILL:
                # Say so itself: the process that waits for it would have to import zmq first.
                unregister(self.connection_info, {self.id: -signum})
                os._exit(ALONE)
            super().obey(signum)

        def after_registration(self, maybe_tunnel: Any) -> None:
            super().after_registration(maybe_tunnel)
            faulthandler.cancel_dump_traceback_later()
            about = {"engine": self.id, "info": self.connection_info}
            os.write(self.registration, json.dumps(about).encode())
            os.close(self.registration)
            url = f"{self.connection_info['interface']}:{self.connection_info['hb_ping']}"
            keys = (self.curve_serverkey, self.curve_publickey, self.curve_secretkey)
            arguments = (maybe_tunnel(url), *(key or None for key in keys))
            # A thread of its own: the main one may be in a cell.
            threading.Thread(target=_follow, args=arguments, daemon=True).start()

    return RemoteEngine


def _follow(url: str, server: bytes | None, public: bytes | None, secret: bytes | None) -> None:
    """End this process when the controller's heart has stopped."""
    import zmq
    from ipyparallel import util
    from zmq.utils.monitor import recv_monitor_message

    context = zmq.Context()
    beats = context.socket(zmq.SUB)
    beats.subscribe(b"")
    closed = beats.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    util.connect(beats, url, server, public, secret)
    poller = zmq.Poller()
    poller.register(beats, zmq.POLLIN)
    poller.register(closed, zmq.POLLIN)
    end = time.monotonic() + times.CONTROLLER_SILENT
    while ready := dict(poller.poll(max(0, int(1000 * (end - time.monotonic()))))):
        if closed in ready:
            recv_monitor_message(closed)
            end = min(end, time.monotonic() + times.CONTROLLER_CLOSED.seconds())
        if beats in ready:
            beats.recv()
            end = time.monotonic() + times.CONTROLLER_SILENT
    os._exit(ALONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
