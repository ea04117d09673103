"""Name what the notebook's side uses of the insides of ipyparallel and IPython.

The rest is named in :mod:`.few_messages`, :mod:`.hub_internals` and :mod:`.engine_internals`, and,
of a rank, in ``labkit.rank.ipython_internals``. :func:`check` says what this version hides of all.
The functions then do less, and stop nothing.

Imports nothing heavy: the exit notice, the controller and the warm process come by here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec
from threading import Thread
from types import CodeType
from typing import Any

from ..wire.state import Feature, Missing, find_missing_in_sources
from . import engine_internals, few_messages, hub_internals

#: What rests on which names, by library.
FEATURES: dict[str, dict[str, Feature]] = {
    "ipyparallel": {
        "requests": Feature(
            (
                "AsyncResult._children",
                "Client.create_message_futures",
                "MessageFuture.iopub_callbacks",
            ),
            "labkit cannot follow what runs on the ranks",
            needed=True,
        ),
        "few messages": few_messages.FEATURE,
        **hub_internals.FEATURES,
        **engine_internals.FEATURES["ipyparallel"],
        "engines": Feature(
            ("Client._query_stream", "Client._send", "Client._update_engines"),
            "a start may wait in vain for a rank that is there, on a busy machine",
        ),
        "control": Feature(
            ("Client._build_targets", "Client._send", "Client._control_stream"),
            "ranks cannot be asked while a cell runs, so deadlocks are not named and "
            "lab.status() shows no lines",
        ),
        "busy": Feature(
            ("Client._engines", "Client._outstanding_dict"),
            "a rank that has ended its cell counts as busy as long as another one runs, so a "
            "deadlock that it has left behind is not named",
        ),
        "exits": Feature(
            (
                "Client._notification_handlers",
                "Hub.unregister_engine",
                "Hub.query_handlers",
                "Hub.notifier",
            ),
            'how a rank of engines="mpi", "slurm" or "ssh" has ended is not known',
        ),
        "launchers": Feature(
            (
                "LocalProcessLauncher._wait_thread",
                "BaseLauncher.stop_callbacks",
                "BaseLauncher.stop_data",
            ),
            'a rank of engines="mpi", "slurm" or "ssh" that ends at start-up is noticed late',
        ),
    },
    "ipykernel": engine_internals.FEATURES["ipykernel"],
    "Python": engine_internals.FEATURES["Python"],
    "IPython": {
        "board": Feature(
            ("HistoryManager.outputs", "InteractiveShell._tee"),
            "what ranks do is not shown while a cell runs",
        ),
    },
}

#: The source file that defines each class.
_FILES = {
    "AsyncFirst": ("ipyparallel", "_async.py"),
    "AsyncResult": ("ipyparallel", "client/asyncresult.py"),
    "Client": ("ipyparallel", "client/client.py"),
    "MessageFuture": ("ipyparallel", "client/futures.py"),
    "BaseLauncher": ("ipyparallel", "cluster/launcher.py"),
    "LocalProcessLauncher": ("ipyparallel", "cluster/launcher.py"),
    "IPController": ("ipyparallel", "controller/app.py"),
    "Hub": ("ipyparallel", "controller/hub.py"),
    "TaskScheduler": ("ipyparallel", "controller/task_scheduler.py"),
    "IPEngine": ("ipyparallel", "engine/app.py"),
    "Kernel": ("ipykernel", "kernelbase.py"),
    "HistoryManager": ("IPython", "core/history.py"),
    "InteractiveShell": ("IPython", "core/interactiveshell.py"),
}


@cache
def check() -> tuple[Missing, ...]:
    """Return the features that are off with the versions that are installed here."""
    return find_missing_in_sources(FEATURES, _FILES)


# -- the client: requests and their replies -----------------------------------------------------


def replies(result: Any) -> list[Any]:
    """Return the futures of an AsyncResult, one per engine, in the order of its targets."""
    return list(result._children)


def on_new_future(client: Any, prepare: Callable[[Any], None]) -> None:
    """Call ``prepare(future)`` with the future of every request before the request is sent."""
    original = client.create_message_futures

    def create_message_futures(*args: Any, **kwargs: Any) -> Any:
        futures = original(*args, **kwargs)
        prepare(futures[0])
        return futures

    client.create_message_futures = create_message_futures


def on_output(future: Any, take: Callable[[dict[str, Any]], None]) -> None:
    """Call ``take(message)`` with all that the engine writes for a request."""
    future.iopub_callbacks.append(take)


def send_control(client: Any, engine: int, message: str, content: Mapping[str, Any]) -> Any:
    """Send a request on an engine's control channel.

    Returns
    -------
    MessageFuture or None
        The future of the reply; None if ipyparallel hides the channel.
    """
    if not all(hasattr(client, name) for name in ("_build_targets", "_send", "_control_stream")):
        return None
    (identity,) = client._build_targets(engine)[0]
    return client._send(client._control_stream, message, dict(content), ident=identity)


def ask_for_engines(client: Any, then: Callable[[], None]) -> None:
    """Make a client ask the controller again which engines are there; call ``then()`` afterwards.

    The controller tells each of them once, as a notice. A client that has asked for the list just
    before, and is not connected to the notices yet, would wait for it forever.
    """
    if not all(hasattr(client, name) for name in ("_query_stream", "_send", "_update_engines")):
        return

    def take(asked: Any) -> None:
        engines = asked.result()["content"].get("engines", {})
        client._update_engines({int(engine): name for engine, name in engines.items()})
        then()

    client._send(client._query_stream, "connection_request").add_done_callback(take)


def has_work(client: Any, engine: int) -> bool:
    """Return whether a request of this client to an engine has no reply yet.

    Where ipyparallel hides what is out per engine, any request to any of them counts.
    """
    if not (hasattr(client, "_engines") and hasattr(client, "_outstanding_dict")):
        return bool(client.outstanding)
    return bool(client._outstanding_dict.get(client._engines.get(engine)))


def has_tasks(client: Any) -> bool:
    """Return whether a request of this client is out of which nobody knows who will get it, as
    those of a load-balanced view. Where ipyparallel hides what is out per engine, there is none.
    """
    if not hasattr(client, "_outstanding_dict"):
        return False
    known = set().union(*client._outstanding_dict.values())
    return bool(set(client.outstanding) - known)


def on_notice(client: Any, kind: str, handle: Callable[[Mapping[str, Any]], None]) -> None:
    """Call ``handle(message)`` with the controller's notices of one kind (:func:`add_notice`)."""
    if hasattr(client, "_notification_handlers"):
        client._notification_handlers[kind] = handle


def on_engines(client: Any, then: Callable[[], None]) -> None:
    """Call ``then()`` each time a client has noted that an engine has come or left."""
    handlers = getattr(client, "_notification_handlers", {})

    def heard(original: Callable[[Any], None], message: Any) -> None:
        original(message)
        then()

    for kind in ("registration_notification", "unregistration_notification"):
        if kind in handlers:
            handlers[kind] = partial(heard, handlers[kind])


# -- the cluster and its launchers --------------------------------------------------------------


def end_thread(cluster: Any, seconds: float) -> None:
    """End the thread that ipyparallel starts for a Cluster in a notebook, and its loop."""
    thread: Thread | None = getattr(cluster, "_async_thread", None)
    loop = getattr(cluster, "_thread_loop", None)
    if thread is None or loop is None:
        return
    cluster._async_thread = None
    loop.add_callback(loop.stop)
    thread.join(seconds)
    if not thread.is_alive():
        loop.close()


def thread_of(launcher: Any) -> Thread | None:
    """Return the thread that waits for the process of a launcher and ends with it, if any."""
    thread: Thread | None = getattr(launcher, "_wait_thread", None)
    return thread


def has_stopped(launcher: Any) -> bool:
    """Return whether a launcher has heard that it, or one of its engines, has ended."""
    stopped = getattr(launcher, "stop_data", None) or {}
    return launcher.state == "after" or bool(stopped.get("engines"))


def forget(launcher: Any) -> None:
    """Make a launcher of one process take it for stopped, and tell nobody."""
    if hasattr(launcher, "stop_callbacks"):
        launcher.stop_callbacks.clear()
    launcher.state = "after"


# -- the notebook's kernel ----------------------------------------------------------------------


class _WithDocstrings(SourceFileLoader):
    """Compiles a module as without ``-OO``, and leaves Python's cache of compiled files alone."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True, optimize=1)


def mend_magics() -> None:
    """Import ipyparallel's magics where Python drops docstrings (``-OO``), before its client does:
    the module fills in its own, and ends in an AttributeError where it has none."""
    name = "ipyparallel.client.magics"
    if sys.flags.optimize < 2 or name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        return
    spec.loader = _WithDocstrings(name, spec.loader.path)
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def has_printed(shell: Any) -> bool | None:
    """Return whether the cell that runs has printed anything; None where IPython does not say."""
    outputs = getattr(shell.history_manager, "outputs", None)
    if outputs is None or not hasattr(shell, "_tee"):
        return None
    number = shell.displayhook.prompt_count  # under which IPython keeps what it printed
    return bool(outputs.get(number))
