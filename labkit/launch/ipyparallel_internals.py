"""Name what labkit uses of the insides of ipyparallel, IPython and ipykernel.

The notebook's side, the controller and the engine need it; beside it only :mod:`.few_messages`
and :mod:`.hub_internals` name some (the rank's own reach is in ``labkit.rank.ipython_internals``).
:func:`check` says what this version hides. The functions below then do less, and stop nothing.

Imports nothing heavy: the exit notice, the controller and the warm process come by here.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec
from threading import Thread
from types import CodeType, SimpleNamespace
from typing import Any

from ..wire.features import Feature, Missing, find_missing_in_sources, is_defined
from ..wire.protocol import READY
from . import few_messages, hub_internals

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
        "ids": hub_internals.FEATURE,
        "tasks": hub_internals.TASKS,
        "registration": Feature(
            ("IPEngine.complete_registration",),
            "labkit cannot tell when a rank is there",
            needed=True,
        ),
        "engines": Feature(
            ("Client._query_stream", "Client._send", "Client._update_engines"),
            "a start may wait in vain for a rank that is there, on a busy machine",
        ),
        "ready": Feature(
            ("Hub.handle_new_heart", "IPEngine.registrar"),
            "a start takes up to 0.2 s longer",
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
        "news": Feature(
            ("Hub.notifier", "Hub.query_handlers"),
            "a client may wait in vain for an engine that connects while it is about to listen",
        ),
        "sockets": Feature(
            ("IPController.construct_url",),
            "the controller listens on loopback instead of on unix sockets",
        ),
        "heart": Feature(
            ("IPController.heartmonitor_process",),
            "the controller has a second process, which measures heartbeats",
        ),
        "stop": Feature(("IPEngine._signal_stop",), "ranks take up to half a second longer to end"),
        "thread": Feature(
            ("AsyncFirst._async_thread", "AsyncFirst._thread_loop"),
            "a stopped lab leaves a thread behind in the notebook",
        ),
    },
    "ipykernel": {
        "handlers": Feature(
            ("Kernel.control_handlers", "Kernel.control_thread"),
            "the stop button does not reach a rank",
        ),
    },
    "IPython": {
        "board": Feature(
            ("HistoryManager.outputs", "InteractiveShell._tee"),
            "what ranks do is not shown while a cell runs",
        ),
    },
    "Python": {
        "exit functions": Feature(
            ("atexit._run_exitfuncs",),
            "what a rank has registered with atexit does not run when the lab is stopped",
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
    stock = client.create_message_futures

    def create_message_futures(*args: Any, **kwargs: Any) -> Any:
        futures = stock(*args, **kwargs)
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
    """Let a client ask the controller again which engines are there; call ``then()`` afterwards.

    The controller tells each of them once, as a notice. A client that has asked for the list just
    before, and is not connected to the notices yet, would wait for it for ever.
    """
    if not all(hasattr(client, name) for name in ("_query_stream", "_send", "_update_engines")):
        return

    def take(asked: Any) -> None:
        engines = asked.result()["content"].get("engines", {})
        client._update_engines({int(engine): name for engine, name in engines.items()})
        then()

    client._send(client._query_stream, "connection_request").add_done_callback(take)


def has_work(client: Any, engine: int) -> bool:
    """Tell whether a request of this client to an engine has no reply yet.

    Where ipyparallel hides what is out per engine, any request to any of them counts.
    """
    if not (hasattr(client, "_engines") and hasattr(client, "_outstanding_dict")):
        return bool(client.outstanding)
    return bool(client._outstanding_dict.get(client._engines.get(engine)))


def has_tasks(client: Any) -> bool:
    """Tell whether a request of this client is out of which nobody knows who will get it, as
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

    def heard(stock: Callable[[Any], None], message: Any) -> None:
        stock(message)
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
    """Tell whether a launcher has heard that it, or one of its engines, has ended."""
    stopped = getattr(launcher, "stop_data", None) or {}
    return launcher.state == "after" or bool(stopped.get("engines"))


def forget(launcher: Any) -> None:
    """Let a launcher of one process take it for stopped, and tell nobody."""
    if hasattr(launcher, "stop_callbacks"):
        launcher.stop_callbacks.clear()
    launcher.state = "after"


# -- the controller -----------------------------------------------------------------------------


def use_unix_sockets(kind: type) -> None:
    """Let a class of controllers spell its addresses as engines and clients do.

    Stock, they take a unix socket's number from a colon (``dir:7``), the controller puts it
    behind a dash (``dir-7``).
    """

    def construct_url(self: Any, kind: str, channel: str, index: Any = None) -> str:
        info = getattr(self, f"{kind}_info")
        port = info[channel] if index is None else info[channel][index]
        return f"{info['interface']}:{port}"

    kind.construct_url = construct_url  # type: ignore[attr-defined]


def has_unix_sockets() -> bool:
    """Tell whether :func:`use_unix_sockets` works with the installed ipyparallel."""
    return is_defined("construct_url", *_FILES["IPController"])


def measure_heartbeats_in_thread(controller: Any) -> None:
    """Let a controller's heart monitor be a thread; stock, it is a child process."""
    process = getattr(controller, "heartmonitor_process", None)
    if process is not None:
        controller.heartmonitor_process = Thread(
            target=process.run, name="heartmonitor", daemon=True
        )


def without_pause(controller: type) -> AbstractContextManager[None]:
    """Let a controller be made without the quarter second that it waits for its database to be
    there: without one (``NoDB``), nothing is waited for."""
    return _seen_by(controller.__module__, "time", sleep=lambda seconds: None)


@contextmanager
def _seen_by(module: str, name: str, **attributes: Any) -> Iterator[None]:
    """Let a module see other attributes of one that it imports by a name of its own."""
    own = vars(sys.modules[module]) if module in sys.modules else {}
    stock = own.get(name)
    if stock is None:
        yield
        return
    own[name] = SimpleNamespace(**{**vars(stock), **attributes})
    try:
        yield
    finally:
        own[name] = stock


def add_notice(
    hub: Any, kind: str, describe: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    """Let a hub tell all clients of each engine that leaves, before it forgets the engine.

    ``describe`` turns the content of the engine's message into that of the notice.
    """
    if not all(hasattr(hub, name) for name in ("unregister_engine", "query_handlers", "notifier")):
        return
    stock = hub.unregister_engine

    def unregister_engine(ident: Any, message: dict[str, Any]) -> None:
        hub.session.send(hub.notifier, kind, content=describe(message["content"]))
        stock(ident, message)

    hub.unregister_engine = unregister_engine
    hub.query_handlers["unregistration_request"] = unregister_engine


def hear_ready(hub: Any) -> None:
    """Let a hub take an engine for connected when it says so (:func:`say_ready`).

    Stock, it is after the second heartbeat, which is not sooner than the period.
    """
    if not all(hasattr(hub, name) for name in ("handle_new_heart", "query_handlers")):
        return

    def ready(idents: Sequence[bytes], message: dict[str, Any]) -> None:
        hub.handle_new_heart(idents[0])

    hub.query_handlers[READY] = ready


def on_client(hub: Any, note: Callable[[str], None]) -> None:
    """Call ``note(session)`` for each client that connects to a hub."""
    handlers = getattr(hub, "query_handlers", {})
    stock = handlers.get("connection_request")
    if stock is None:
        return

    def connection_request(ident: Any, message: dict[str, Any]) -> None:
        note(message["header"]["session"])
        stock(ident, message)

    handlers["connection_request"] = connection_request


def with_subscribers(controller: type) -> AbstractContextManager[None]:
    """Let a controller be made whose hub sees who listens to its news (:func:`hold_news`)."""
    import zmq

    return _seen_by(controller.__module__, "zmq", PUB=zmq.XPUB)


def hold_news(hub: Any, seconds: float) -> None:
    """Let a hub keep its news until the client listens that has just asked which engines are there.

    Stock, a client misses the engine that connects between the hub's answer and the client's
    subscription, and waits for it in vain. One that never listens is waited for so many seconds.
    """
    import zmq

    handlers, news = getattr(hub, "query_handlers", {}), getattr(hub, "notifier", None)
    stock = handlers.get("connection_request")
    if stock is None or news is None or news.socket.type != zmq.XPUB:
        return
    news.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
    send, kept = news.send_multipart, list[Callable[[], None]]()
    asked, coming = set[str](), list[object]()

    def connection_request(ident: Any, message: dict[str, Any]) -> None:
        stock(ident, message)
        if (client := message["header"]["session"]) not in asked:
            asked.add(client)
            coming.append(token := object())
            hub.loop.call_later(seconds, arrived, token)

    def arrived(token: object) -> None:
        if token in coming:
            coming.remove(token)
        while kept and not coming:
            kept.pop(0)()

    def subscribed(parts: list[bytes]) -> None:
        if parts[0][:1] == b"\x01" and coming:
            arrived(coming[0])

    def send_multipart(*args: Any, **kwargs: Any) -> None:
        if coming:
            kept.append(partial(send, *args, **kwargs))
        else:
            send(*args, **kwargs)

    news.send_multipart = send_multipart
    news.on_recv(subscribed)
    handlers["connection_request"] = connection_request


# -- the engine ---------------------------------------------------------------------------------


def on_registered(kind: type, before: str, then: str) -> None:
    """Let a class of engines call two methods of its own when the hub has an id for one.

    ``before(connect)`` returns what connects the engine's sockets, from what would do it:
    ``connect(socket, url)``. ``then(maybe_tunnel)`` is called when all is made; ``maybe_tunnel``
    turns an address of the controller into one that can be reached from here.
    """
    stock = kind.complete_registration  # type: ignore[attr-defined]

    async def complete_registration(self: Any, msg: Any, connect: Any, maybe_tunnel: Any) -> None:
        with _without_list_of_modules():
            await stock(self, msg, getattr(self, before)(connect), maybe_tunnel)
        getattr(self, then)(maybe_tunnel)

    kind.complete_registration = complete_registration  # type: ignore[attr-defined]


def say_ready(engine: Any) -> None:
    """Tell the hub that an engine is there, on the socket by which it has registered."""
    if socket := getattr(engine, "registrar", None):
        engine.session.send(socket, READY)


def _without_list_of_modules() -> AbstractContextManager[None]:
    """Let a kernel be made without the list of all modules that are imported, which its debugger
    would need: without debugpy nobody reads it. To make it, a forked rank writes to the count of
    references in each module, and so has pages of its own for all of them.
    """
    if getattr(sys.modules.get("ipykernel.debugger"), "_is_debugpy_available", True):
        return nullcontext()
    return _seen_by("ipykernel.ipkernel", "sys", modules={})


def on_sigterm(kind: type, then: str) -> None:
    """Let a class of engines call its method ``then()`` on SIGTERM, and nothing else."""

    def _signal_stop(self: Any, sig: int, frame: Any) -> None:
        getattr(self, then)()

    kind._signal_stop = _signal_stop  # type: ignore[attr-defined]


def run_exit_functions() -> None:
    """Run what was registered with atexit, now, but not torch's: it would take its tables of
    operators apart one by one, for 50 ms of a process that is about to end."""
    finalizers: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    for finalizer, info in list(finalizers.items()):
        if getattr(info.func, "__module__", "") == "torch.library":
            finalizer.atexit = False
    if hasattr(atexit, "_run_exitfuncs"):
        atexit._run_exitfuncs()


def answer_control(kernel: Any, kind: str, handler: Callable[[Any, Any, Any], None]) -> None:
    """Let a kernel answer requests of one kind on its control channel.

    ``handler(stream, ident, parent)`` runs in the thread of that channel.
    """
    if hasattr(kernel, "control_handlers"):
        kernel.control_handlers[kind] = handler


def call_later(kernel: Any, seconds: float, function: Callable[..., object], *args: Any) -> None:
    """Call a function in the thread of a kernel's control channel, after what is to be sent."""
    thread = getattr(kernel, "control_thread", None)
    if thread is None:
        kernel.io_loop.call_later(seconds, function, *args)
    else:
        thread.io_loop.call_later(seconds, function, *args)


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
    """Tell whether the cell that runs has printed anything; None where IPython does not say."""
    outputs = getattr(shell.history_manager, "outputs", None)
    if outputs is None or not hasattr(shell, "_tee"):
        return None
    number = shell.displayhook.prompt_count  # under which IPython keeps what it printed
    return bool(outputs.get(number))
