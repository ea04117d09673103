"""Start the ranks of a lab by forking them from one warm process: ``engines="local"``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traitlets.config import Config

from .. import interrupts, times
from ..errors import StartError
from ..rank_names import how_to_replace
from ..wire.exit_code import describe_exit
from ..wire.machine import has_gpu
from ..wire.protocol import CLIENT
from . import preconditions
from .ipp_launchers import LabkitControllerLauncher, LabkitEngineSetLauncher
from .launcher import Launcher
from .warm_process import CONTROLLER, QUIET, WarmProcess


class ForkedLauncher(Launcher):
    """Controller and ranks are children of a warm process, which sees how each ends.

    Parameters
    ----------
    warm
        The warm process, already starting. It ends with the lab.
    """

    engines = "local"
    replaces_some = True

    def __init__(self, warm: WarmProcess) -> None:
        super().__init__()
        self.warm = warm

    def count_gpus(self) -> int:
        if not has_gpu():
            return 0
        path = self.warm.root / "gpus"
        argv = ["labkit.rank.setup:write_gpu_count", str(path)]
        child = self.warm.fork("gpus", "call", argv)
        interrupts.wait_by(child.exited.wait, times.FORKED)
        return int(path.read_text()) if path.exists() else 0

    def start(self, size: int) -> None:
        config = Config()
        config.LabkitControllerLauncher.controller_args = QUIET
        config.LabkitEngineSetLauncher.engine_args = QUIET
        # Classes: to find one by its name, ipyparallel reads what every package has registered.
        self._make_cluster(
            self.warm.root,
            engines=LabkitEngineSetLauncher,
            controller=LabkitControllerLauncher,
            config=config,
        )
        self.cluster.warm = self.warm
        self.warm.users.add(self)  # it ends with the lab, not with its last launcher
        self.cluster.start_controller_sync()
        self._wait_for_controller()
        self.cluster.start_engines_sync(size)
        self.engine_set.observers.append(self._observe)

    def _wait_for_controller(self) -> None:
        """Wait until it has written how to reach it, or has ended: the engines need it."""
        controller = self.cluster.controller
        files = [Path(path) for path in controller.connection_files.values()]

        def is_there(seconds: float) -> bool:
            deadline = time.monotonic() + seconds
            while controller.poll() is None and not all(path.exists() for path in files):
                if time.monotonic() > deadline:
                    return False
                time.sleep(times.FILE_LOOK)
            return True

        interrupts.wait_by(is_there, times.FORKED)

    def _observe(self, index: int, pid: int, code: int) -> None:
        if self.on_exit is not None:
            self.on_exit(pid, code)

    def why_not_coming(self, size: int) -> str:
        if exits := self.engine_set.exits:
            index, (_, code) = next(iter(exits.items()))
            return f"Rank {index} ended at start-up ({describe_exit(code)}){self.log()}"
        return self.warm.how_ended() if self.warm.closed.is_set() else ""

    def log(self) -> str:
        """Say first which limit of memory may be why ranks did not start."""
        limit = preconditions.memory_limit()
        return f"{limit and f'. {limit}'}{super().log()}"

    def signal(self, pid: int, signum: int) -> bool:
        return self.warm.signal_process(pid, signum)

    def record_folder(self) -> str:
        return str(self.warm.root)

    def clients(self) -> list[str]:
        return [path.name for path in self.warm.root.glob(f"{CLIENT}*")]

    def delay(self) -> str:
        return ""

    def refusal(self, error: Exception) -> str:
        return ""

    def check_preload(self) -> None:
        if self.warm.problems:
            module, problem = next(iter(self.warm.problems.items()))
            raise StartError(f"preload: cannot import {module!r} ({problem}).")

    def why_no_controller(self) -> str:
        child = self.warm.children.get(CONTROLLER)
        # The end of the warm process itself shows in the ranks that it took along.
        if self.warm.process.returncode is None and child and child.code is not None:
            return describe_exit(child.code)
        return ""

    def remedy(self, ranks: Sequence[int]) -> str:
        if self.warm.closed.is_set():  # nobody could start them
            return "labkit.start() gives you a new lab."
        return f"{how_to_replace(ranks)}; the others keep their variables."

    def why_no_fresh_rank(self) -> str:
        why = preconditions.why_folder_gone(self.warm.process.pid)
        return why and (
            f"No fresh rank can start, because the folder in which the lab has started is gone "
            f"({why}). os.chdir(…) to one that is there; labkit.start() gives you a new lab."
        )

    def replace(self, client: Any, hints: Sequence[int | None]) -> set[int]:
        self.engine_set.replace(hints)
        return set()

    def end_ranks(self, client: Any) -> None:
        pass

    def end(self) -> None:
        if self.cluster is not None:
            # The exits that follow are ours: nobody has to hear of them.
            for launcher in (self.cluster.engine_set, self.cluster.controller):
                if launcher is not None:
                    launcher.state = "after"
        self.warm.stop()
        self._forget_cluster()
