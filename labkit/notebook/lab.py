"""The lab: ranks in a process group, driven from a notebook."""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..base import interrupts, versions
from ..base.errors import LabError, UsageError
from ..launch import placement
from ..runtime import request
from ..runtime.control import survey
from ..runtime.messages import Message
from ..runtime.session import Session
from ..runtime.watchdog import find_fault
from ..wire.state import sentences
from ..wire.trial import kind_of
from . import live, shell, variables
from .board import Table
from .run import may_ask, run
from .timeline.timeline import Cell, Timeline, record
from .watch import MOST_NAMES, Watch

_current: Lab | None = None

#: What every cell of the ranks begins with.
OWN_NAMES = ("rank", "world_size", "device", "torch", "dist")


def current() -> Lab | None:
    """Return the lab that ``%%px`` talks to, or None."""
    return _current


def running() -> Lab:
    """Return the lab that ``%%px`` talks to; LabStopped if there is none."""
    if _current is None:
        raise shell.no_lab()
    return _current


def make_current(lab: Lab) -> None:
    """Make ``%%px`` talk to this lab, and end it with the notebook's kernel at the latest."""
    global _current
    atexit.register(lab.stop)
    _current = lab


def session_of(lab: Lab) -> Session:
    """Return what a lab is the face of: its ranks and their process group."""
    return lab._session


def watch_of(lab: Lab) -> Watch:
    """Return what a lab draws while its cells run."""
    return lab._watch


def _cell(text: str) -> Cell:
    """Check the text of a cell and name it after the notebook's cell that it is in."""
    if not text.strip():
        raise UsageError("This cell is empty: there is nothing to record.")
    found = shell.current()
    shell.check_syntax(found, text)
    return Cell(text, shell.cell_name(found, "timeline"))


def parse_ranks(text: str) -> list[int]:
    """Read the ranks that a ``%%px`` cell is for: ``0,2``, ``1-3`` or ``0,2-5`` (an en dash works
    too)."""
    ranks: list[int] = []
    for part in text.replace("–", "-").replace(" ", "").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise UsageError(f"--ranks takes numbers and ranges as in 0,2-3, not {text!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        ranks += range(first, last + 1)
    return ranks


class Lab:
    """A set of ranks. Made by :func:`labkit.start`; see there.

    Examples
    --------
    >>> len(lab)
    4
    >>> lab
    Lab (4 ranks, gloo, cpu)
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watch = Watch()

    # -- what it is -------------------------------------------------------------------------

    @property
    def world_size(self) -> int:
        """Number of ranks.

        Examples
        --------
        >>> lab.world_size
        4
        """
        return len(self._session.cluster.places)

    def __len__(self) -> int:
        return self.world_size

    @property
    def client(self) -> Any:
        """Give the ``ipyparallel.Client`` beneath, for views, ``AsyncResult`` and the rest.

        Its engine ids are not ranks; ``lab.engine_ids`` says which is which.

        Examples
        --------
        >>> view = lab.client.load_balanced_view()
        >>> view.map_sync(lambda x: x * x, range(6))
        [0, 1, 4, 9, 16, 25]
        """
        return self._session.cluster.client

    @property
    def engine_ids(self) -> list[int]:
        """ipyparallel's engine id of each rank, in rank order.

        Examples
        --------
        >>> view = lab.client.direct_view(lab.engine_ids)
        >>> view["rank"]
        [0, 1, 2, 3]
        """
        return [place.engine for place in self._session.cluster.places]

    # -- run --------------------------------------------------------------------------------

    def run(
        self, fn: Callable[..., Any], *args: Any, ranks: Sequence[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Call ``fn(*args, **kwargs)`` on every rank at the same time.

        Parameters
        ----------
        fn
            Any function, also one defined in the notebook. It does not see the variables of
            ``%%px`` cells; ``torch.distributed`` is there by ``import``.
        ranks
            Which ranks; all if None.

        Returns
        -------
        list
            The results in rank order (of ``ranks``). Tensors arrive on the CPU.

        Raises
        ------
        RankError
            If it raises on a rank: each distinct error once.

        Examples
        --------
        >>> import torch
        >>> import torch.distributed as dist
        >>> def add_up(factor):
        ...     x = torch.tensor(factor * dist.get_rank())
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> lab.run(add_up, 10)
        [60, 60, 60, 60]
        >>> lab.run(dist.get_rank, ranks=[1, 3])
        [1, 3]
        """
        chosen = self.check_ranks(ranks)
        self._check_idle(chosen)
        instead = "make it in the function, or in a %%px cell"
        what = "What lab.run was given"
        given, shown, cluster = (fn, args, kwargs), live.Live(live.screen()), self._session.cluster
        with (
            shown,
            variables.packed(cluster, chosen, given, shown, what, instead) as payload,
            cluster.result_files(chosen) as files,
        ):
            with interrupts.shielded():
                group = self._session.group
                sent = request.call(group, chosen, payload, may=may_ask(), files=files)
                finished = run(sent, live=shown, watch=self._watch)
            # Anew: what the ranks have shown stays, and nothing that goes may stand below it.
            with live.Live(live.screen()) as reading:
                return variables.load(finished.outcomes, reading)

    def timeline(
        self,
        fn: Callable[..., Any] | str,
        *args: Any,
        ranks: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> Timeline:
        """Run something on every rank at the same time and record who did what when.

        Parameters
        ----------
        fn
            A function, called as by :meth:`run`; or the text of a cell, which runs among the
            variables of the ``%%px`` cells: ``lab.timeline("train(ddp, batches, optimizer)")``.
        ranks
            Which ranks; all if None.

        Torch's profiler records every operator, which makes small ones take longer, and stops by
        itself after 5 s; what is run goes on.

        Returns
        -------
        Timeline
            A figure, in a notebook; with ``share``, ``overlap``, ``spans`` and ``save``.

        Raises
        ------
        RankError
            If it raises on a rank: each distinct error once.

        Examples
        --------
        >>> import torch
        >>> import torch.distributed as dist
        >>> def step():
        ...     x = torch.ones(1)
        ...     dist.all_reduce(x)
        >>> timeline = lab.timeline(step)
        >>> timeline
        Timeline of ranks 0–3
        ranks 0–3: 1 × all_reduce
        >>> 0 < timeline.share("communication") <= 1
        True
        """
        chosen = self.check_ranks(ranks)
        if isinstance(fn, str):
            if args or kwargs:
                raise UsageError("A cell takes no arguments; only a function does.")
            what: Callable[..., Any] | Cell = _cell(fn)
        elif callable(fn):
            what = fn
        else:
            raise UsageError(f"lab.timeline takes a function or the text of a cell, not {fn!r}.")
        self._check_idle(chosen)
        with interrupts.shielded():
            group = self._session.group
            return record(group, chosen, what, args, kwargs, run=run)

    def __getitem__(self, name: str) -> list[Any]:
        """Return the variable ``name`` of every rank, in rank order. Tensors arrive on the CPU.

        With dots it is an attribute of a variable, as in ``lab["model.weight"]``; names of
        submodules may be numbers, as in ``lab["model.0.weight"]``. Nothing is evaluated.

        Raises
        ------
        UsageError
            If a rank does not have it, or it cannot leave its rank: a DDP model, a group.

        Examples
        --------
        >>> lab["x"] = 3
        >>> lab["x"]
        [3, 3, 3, 3]
        >>> lab["rank"]
        [0, 1, 2, 3]
        >>> lab["device.type"]
        ['cpu', 'cpu', 'cpu', 'cpu']
        """
        self._check_name(name, dotted=True)
        self._check_idle()
        with live.Live(live.screen()) as shown, interrupts.shielded():
            return variables.pull(self._session.group, name, shown)

    def __setitem__(self, name: str, value: Any) -> None:
        """Set the variable ``name`` to ``value`` on every rank.

        Raises
        ------
        UsageError
            If the value cannot be sent, or the name is one that labkit gives to each rank.

        Examples
        --------
        >>> lab["learning_rate"] = 0.1
        >>> lab["learning_rate"]
        [0.1, 0.1, 0.1, 0.1]
        """
        self._check_name(name)
        self._check_own(name)
        self._check_idle()
        what = f"lab[{name!r}] = …: {kind_of(value)}"
        instead, everyone = "make it in a %%px cell", range(self.world_size)
        given, shown, cluster = {name: value}, live.Live(live.screen()), self._session.cluster
        with (
            shown,
            variables.packed(cluster, everyone, given, shown, what, instead) as payload,
            interrupts.shielded(),
        ):
            variables.push(self._session.group, payload, shown)

    def __delitem__(self, name: str) -> None:
        """Delete the variable ``name`` on every rank that has it.

        Raises
        ------
        UsageError
            If no rank has it, or the name is one that labkit gives to each rank.

        Examples
        --------
        >>> lab["x"] = 3
        >>> del lab["x"]
        >>> "x" in lab
        False
        """
        self._check_name(name)
        self._check_own(name)
        self._check_idle()
        with interrupts.shielded():
            variables.delete(self._session.group, name)

    def __contains__(self, name: object) -> bool:
        """Return whether every rank has the variable ``name``.

        Examples
        --------
        >>> "rank" in lab, "no_such_name" in lab
        (True, False)
        """
        self._check_name(name)
        self._check_idle()
        with interrupts.shielded():
            return name in variables.names(self._session.group, modules=True)

    def keys(self) -> list[str]:
        """Return the names of the variables that every rank has, without modules.

        Examples
        --------
        >>> lab["x"] = 3
        >>> "x" in lab.keys(), "torch" in lab.keys()
        (True, False)
        """
        self._check_idle()
        with interrupts.shielded():
            return variables.names(self._session.group)

    def __getattr__(self, name: str) -> Any:  # what is there is found before
        if name.startswith("_"):
            raise AttributeError(f"'Lab' object has no attribute {name!r}", name=name, obj=self)
        raise AttributeError(
            f"a Lab has no {name}; lab[{name!r}] has the values of a variable of the ranks",
            name=name,
            obj=self,
        )

    def __reduce__(self) -> Any:
        raise TypeError("the lab itself stays in the notebook")

    def __iter__(self) -> Iterator[Any]:  # else Python would try lab[0], lab[1], …
        raise TypeError("a Lab is not iterable; lab.status() lists its ranks")

    @staticmethod
    def _check_name(name: object, *, dotted: bool = False) -> None:
        parts = name.split(".") if dotted and isinstance(name, str) else [name]
        first, *rest = [part if isinstance(part, str) else "" for part in parts]
        if not first.isidentifier() or not all(p.isidentifier() or p.isdecimal() for p in rest):
            raise UsageError(f'lab[…] must name one variable, as in lab["x"], got {name!r}.')

    @staticmethod
    def _check_own(name: str) -> None:
        if name in OWN_NAMES:
            raise UsageError(
                f"{name} is a name that labkit gives to each rank, for every cell anew; use "
                "another name."
            )

    def _check_idle(self, ranks: Sequence[int] | None = None) -> None:
        with interrupts.shielded(), interrupts.cancellable():
            self._session.check_idle(ranks)

    def check_ranks(self, ranks: Sequence[int] | None) -> list[int]:
        """Return ``ranks`` as a sorted list, all ranks if None.

        Raises
        ------
        UsageError
            If one is not a rank of this lab.

        Examples
        --------
        >>> lab.check_ranks([3, 1, 3])
        [1, 3]
        >>> lab.check_ranks(None)
        [0, 1, 2, 3]
        """
        return self._session.check_ranks(ranks)

    # -- look -------------------------------------------------------------------------------

    def status(self) -> Table:
        """Show what each rank is doing now, and at which line of which cell; below the table,
        who blocks forever.

        Examples
        --------
        >>> [row.state for row in lab.status()]
        ['idle', 'idle', 'idle', 'idle']
        >>> {row.device for row in lab.status()}
        {'cpu'}
        """
        with interrupts.shielded(), interrupts.cancellable():
            cluster = self._session.cluster
            states = survey(cluster)
            limits = [*sentences(cluster.missing), *placement.warnings(cluster.places)]
            return Table(states, [*limits, *find_fault(cluster, states)])

    def watch(self, *names: str, ranks: Sequence[int] | None = None) -> None:
        """Draw variables of the ranks as curves while the ``%%px`` cells and ``lab.run`` that
        follow run; without a name, draw none any more.

        In a notebook the curves stand below the output of the cell, twice a second anew, and the
        last ones stay. The ranks are asked while they compute: the training needs no line for it.

        Parameters
        ----------
        names
            Up to four variables of the ``%%px`` cells, or of the function that runs: lists of
            numbers, which are drawn against the index; numbers, which are sampled and drawn against
            the time; and dicts of these, with a panel per key. A tensor without dimensions counts
            as a number if it is on the CPU. One on a GPU is not read, because that would wait for
            the GPU: keep ``loss.item()``.
        ranks
            Whose variables; all ranks if None.

        Notes
        -----
        Where nobody looks on, as under nbval and papermill, only the picture of the lists is shown
        when a cell has ended without an error, so that each run gives the same output.

        Examples
        --------
        >>> lab.watch("losses")
        >>> lab.watched
        ['losses']
        >>> lab.watch()
        >>> lab.watched
        []
        """
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                raise UsageError(
                    f'lab.watch takes names of variables, as in lab.watch("losses"), got {name!r}.'
                )
        if len(set(names)) > MOST_NAMES:
            raise UsageError(f"lab.watch draws up to {MOST_NAMES} variables, got {len(names)}.")
        chosen = self.check_ranks(ranks)
        if names:
            versions.need("figures", "lab.watch", "matplotlib")
        with interrupts.shielded():
            self._watch.set(names, chosen, self._session.cluster)

    @property
    def watched(self) -> list[str]:
        """Names of the variables that :meth:`watch` draws.

        Examples
        --------
        >>> lab.watch("losses", "accuracy", ranks=[0])
        >>> lab.watched
        ['losses', 'accuracy']
        >>> lab.watch()
        """
        return list(self._watch.names)

    def messages(self) -> list[Message]:
        """Return the messages that were sent in the last cell, in the order of sending.

        They are those of ``send``, ``isend`` and ``batch_isend_irecv`` as the ranks recorded them
        in the last ``%%px`` cell, ``lab.run`` or ``lab.timeline`` that has ended. A collective is
        no message: what it sends inside is not recorded. Of a cell that failed there are only
        those that a rank has received.

        Returns
        -------
        list
            Of each message ``sender``, ``receiver``, ``elements``, ``type``, ``bytes``, ``tag``
            and ``where`` its call stands. Ranks are those of the lab, also within a subgroup. The
            order is that of the ranks' clocks. Of each rank and group no more than the newest 128
            sends and receives are kept.

        Raises
        ------
        LabError
            If torch hides what the record needs.

        Examples
        --------
        >>> import torch
        >>> import torch.distributed as dist
        >>> def pass_on():
        ...     x = torch.ones(3)
        ...     if dist.get_rank() == 0:
        ...         dist.send(x, dst=1)
        ...     elif dist.get_rank() == 1:
        ...         dist.recv(x, src=0)
        >>> done = lab.run(pass_on)
        >>> for message in lab.messages():
        ...     print(message.sender, message.receiver, message.type, message.bytes)
        0 1 float32 12
        """
        group = self._session.group
        if why := group.cluster.off_reason("messages"):
            raise LabError(why)
        return group.messages()

    def __repr__(self) -> str:
        """Return what is known without asking any rank; ``lab.status()`` asks."""
        return f"Lab ({self._session.summary()})"

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        """Show a cell's last line ``lab`` as the table of ``lab.status()``, where that can be had.

        One table for both forms of it, and never an error: a lab in trouble shows itself too.
        """
        if self._session.stopped:
            return {"text/plain": repr(self)}
        try:
            table = self.status()
            return {"text/plain": repr(table), "text/html": table.to_html()}
        except Exception as error:
            return {"text/plain": f"{self!r}\n{error}"}

    # -- begin again ------------------------------------------------------------------------

    def reset(self) -> None:
        """Form the process group anew; every variable on the ranks stays.

        Sub-groups and models wrapped in DDP belong to the old group: make them again.

        Examples
        --------
        >>> lab["x"] = 3
        >>> lab.reset()
        >>> lab["x"]
        [3, 3, 3, 3]
        """
        self._check_idle()
        with interrupts.shielded():
            self._session.reset()

    def restart(self, ranks: Sequence[int] | None = None) -> None:
        """Replace ranks by fresh processes; a rank keeps its number.

        Parameters
        ----------
        ranks
            Which ranks; all if None. The others keep their variables, and the process group is
            formed again with the new ones.

        Raises
        ------
        LabError
            If ``ranks`` leaves out one that has ended.

        Examples
        --------
        >>> lab["x"] = 3
        >>> lab.restart(ranks=[1, 2])
        >>> lab.run(lambda: 3, ranks=[1, 2])
        [3, 3]
        >>> try:
        ...     lab["x"]
        ... except labkit.LabError as error:
        ...     print(error)
        There is no variable 'x' on ranks 1–2.
        """
        with interrupts.shielded():
            self._session.restart(ranks)

    def stop(self) -> None:
        """End every process of the lab. Also happens when the notebook's kernel ends.

        Examples
        --------
        >>> with labkit.start(2) as lab:  # stops it at the end, whatever happens
        ...     lab.run(lambda: "here")
        ['here', 'here']
        >>> lab
        Lab (stopped)
        """
        global _current
        with interrupts.shielded():
            if _current is self:
                _current = None
            self._session.stop()
            atexit.unregister(self.stop)

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
