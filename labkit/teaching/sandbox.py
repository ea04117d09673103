"""Run a learner's notebook where it reaches neither the teacher's files nor another learner's.

A sandbox has up to three walls, as many as the system allows; :func:`choose` finds out which.

- *Namespaces* of its own for mounts, processes, the network and shared memory. It sees the system
  and this Python, read-only, and its own folder; no home, no other process, no network. When its
  first process ends, the system kills all others.
- *Another user*, where this process is root: a number that no account has, a different one for
  each sandbox that runs at the same time.
- *Limits* of time, memory, processes and file size, for every user and on every Linux.

In each of them, labkit is a copy without the solutions and expected values of the course.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shlex
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from ..base import times, variables
from ..base.errors import StartError
from ..base.files import reason
from ..course import material
from . import trial_source
from .usage import ServedTime, memory_of

#: Accounts that no person has: systemd takes numbers from this range for services in the same way.
FIRST_USER, LAST_USER = 61184, 65519
#: What a system consists of, beside this Python. A home, /srv, /mnt, /opt, /var and /run are none.
SYSTEM = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/sys", "/usr")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: Bytes of a single file, and processes and threads of a sandbox. Four ranks have 88 threads.
FILE_SIZE, PROCESSES = 1 << 30, 1024
#: Variables that say what a program computes with, and nothing about who started it.
KEPT = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", variables.THREADS, variables.SUSPECT)
#: Where the system's commands are.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: How much of what the sandbox's own programs wrote is kept, to say why one did not start.
LOG_BYTES = 4096

# Root in the new namespaces, as itself or in a user namespace. The old root is unmounted: nothing
# of it can be reached any more, whatever somebody inside may do.
_ENTER = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755,size=16m labkit {root}
cd {root}
mkdir -p proc dev/shm tmp .old
mount -t tmpfs -o mode=1777,size={shared} labkit dev/shm
mount -t tmpfs -o mode=1777,size={shared} labkit tmp
{system}
for device in {devices}; do : > ".$device"; mount --bind "$device" ".$device"; done
ln -s /proc/self/fd dev/fd
mkdir -p .{job} .{asked}
mount --bind {job} .{job}
mount --bind {asked} .{asked}
mount -o remount,bind,ro .{asked}
mount -t proc proc proc
if command -v ip > /dev/null; then ip link set lo up; fi
pivot_root . .old
cd /
umount -l /.old
mount -o remount,bind,ro /
cd {job}
exec {drop} "$@"
"""
_BIND = """
mkdir -p .{place}
mount --rbind {source} .{place}
mount -o remount,bind,ro .{place}
"""


@dataclass(frozen=True)
class Limits:
    """What a notebook may take.

    Parameters
    ----------
    cell
        Seconds of :class:`.usage.ServedTime` that one cell, or the trial of one answer, may take.
    memory
        Bytes of memory, of all its processes together.
    """

    cell: float = times.GRADED_CELL
    memory: int = 4 << 30

    @property
    def whole(self) -> float:
        """Seconds that the whole notebook may take, and each of its processes of a core."""
        return times.GRADED_CELLS * self.cell


@dataclass(frozen=True)
class Walls:
    """Which walls there are here, beside the limits."""

    namespaces: bool
    other_user: bool
    why: str = ""  #: why not all of them

    def __str__(self) -> str:
        user = "another user" if self.other_user else "this user"
        space = "a view of the system of its own" if self.namespaces else "no namespaces"
        why = f" ({self.why})" if self.why else ""
        return f"Notebooks run as {user}, with {space}, and within limits{why}."


@dataclass
class Job:
    """A folder of one notebook's run.

    ``asked`` holds what is asked of it, which it can only read; ``home`` is its home folder, with
    the copy of the course; what it answers goes to ``told``, which its first process alone has
    open.
    """

    folder: Path
    asked: Path
    told: Path
    user: int | None  #: another user than this one, by number

    @property
    def home(self) -> Path:
        return self.folder / "home"


@dataclass
class Ended:
    """How a run ended, and what it took."""

    seconds: float = 0.0
    memory: int = 0  #: bytes, the most that was seen at once
    code: int = 0
    reason: str = ""  #: why it was ended: "" if it ended by itself
    log: str = field(default="", repr=False)


class Sandboxes:
    """Make sandboxes, in a temporary folder that is removed in the end."""

    def __init__(self, walls: Walls, base: Path) -> None:
        self.walls = walls
        self._base = base
        self._package = base / "package"
        (base / "root").mkdir()
        _copy_package(self._package)
        self._count = 0
        self._stopped = threading.Event()
        self._users: set[int] = set()
        self._lock = threading.Lock()

    def job(self) -> Job:
        """Make the folders of one run."""
        with self._lock:
            self._count += 1
            number = self._count
            user = _free_user(self._users) if self.walls.other_user else None
            if user is not None:
                self._users.add(user)
        asked, told = (self._base / f"{name}{number}" for name in ("asked", "told"))
        job = Job(self._base / str(number), asked, told, user)
        for path in (job.folder, asked, job.home, job.folder / "tmp"):
            path.mkdir()
        told.touch(0o600)
        return job

    def run(self, job: Job, module: str, arguments: Sequence[str], limits: Limits) -> Ended:
        """Run a module of labkit inside, until it ends or a limit is reached; nothing that it has
        started lives on. Its arguments are the folder of what is asked, the number of the open file
        for what it tells, and ``arguments``.

        Raises
        ------
        StartError
            If it cannot be started.
        """
        if job.user is not None:
            _give(job.folder, job.user)
        with tempfile.TemporaryFile() as log:
            with open(job.told, "ab") as told:
                words = [module, str(job.asked), str(told.fileno()), *arguments]
                process = self._start(job, words, limits, log, told.fileno())
            ended = _follow(process, limits, self._stopped)
            if job.user is not None and not self.walls.namespaces:
                _end_user(job.user)
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            ended.log = log.read().decode(errors="replace").strip()
        return ended

    def stop(self) -> None:
        """End all runs, and those that would begin."""
        self._stopped.set()

    def remove(self, job: Job) -> None:
        """Remove what a run has left."""
        for folder in (job.folder, job.asked):
            shutil.rmtree(folder, ignore_errors=True)
        job.told.unlink(missing_ok=True)
        with self._lock:
            self._users.discard(job.user or 0)

    def _start(
        self, job: Job, words: Sequence[str], limits: Limits, log: IO[bytes], told: int
    ) -> subprocess.Popen[bytes]:
        program = self._program(words)
        if self.walls.namespaces:
            command = self._enter(job, limits, program)
        else:
            warden = [sys.executable, "-P", "-m", f"{__package__}.warden", str(os.getpid())]
            command = [*warden, *_as_user(job.user), *program]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=job.folder if not self.walls.namespaces else "/",
                env=self._environment(job),
                pass_fds=[told],
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"A notebook's sandbox cannot be started ({reason(error)}).") from None

    def _program(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs a module of this Python."""
        return [sys.executable, "-P", "-m", *words]

    def _enter(self, job: Job, limits: Limits, program: Sequence[str]) -> list[str]:
        """Return the command that runs a program inside namespaces."""
        root = os.geteuid() == 0
        user = str(job.user if root else os.getuid())
        kept = ["--no-new-privs"]
        if root:
            drop = [*_as_user(job.user), "setpriv", *kept]
        else:  # from root of the user namespace back to this user, who cannot undo the mounts
            back = ["unshare", "--user", f"--map-user={user}", f"--map-group={os.getgid()}"]
            drop = [*back, "setpriv", *kept]
        system = "".join(_bind(source, place) for source, place in self._view().items())
        script = _ENTER.format(
            root=shlex.quote(str(self._base / "root")),
            job=shlex.quote(str(job.folder)),
            asked=shlex.quote(str(job.asked)),
            shared=limits.memory // 2,
            devices=shlex.join(_devices()),
            system=system,
            drop=shlex.join(drop),
        )
        own = [] if root else ["--user", "--map-root-user"]
        spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
        with_parent = ["setpriv", "--pdeathsig", "KILL"]
        return [*with_parent, "unshare", *own, *spaces, "sh", "-c", script, "sh", *program]

    def _view(self) -> dict[str, str]:
        """Return what is seen inside: source -> place."""
        own = Path(__file__).resolve().parents[1]
        prefixes = [sys.prefix, sys.base_prefix, *site.getsitepackages()]
        prefixes += map(os.path.realpath, (*prefixes, os.path.dirname(sys.executable)))
        found = [p for p in map(os.path.normpath, (*SYSTEM, *prefixes)) if os.path.exists(p)]
        view = {p: p for p in sorted(found) if not any(_is_in(p, q) for q in found if q != p)}
        view[str(self._package)] = str(self._package)
        if any(_is_in(str(own), p) for p in view):  # installed there: hide its solutions
            view[str(self._package / "labkit")] = str(own)
        return view

    def _environment(self, job: Job) -> dict[str, str]:
        """Return the variables of a run: nothing of this process's own that could be a secret."""
        temporary = "/tmp" if self.walls.namespaces else str(job.folder / "tmp")
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return {
            **kept,
            "PATH": f"{sysconfig.get_path('scripts')}:{PATH}",
            "HOME": str(job.home),
            "USER": "learner",
            "LOGNAME": "learner",
            "LANG": "C.UTF-8",
            "TMPDIR": temporary,
            "PYTHONPATH": str(self._package),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


@contextlib.contextmanager
def choose() -> Iterator[Sandboxes]:
    """Have sandboxes with as many walls as there can be here; each choice is tried once.

    Raises
    ------
    StartError
        If not even a process with limits can be started.
    """
    if sys.platform != "linux":
        raise StartError("labkit grade needs Linux: elsewhere, notebooks cannot be kept apart.")
    root = os.geteuid() == 0
    why = ""
    # In a folder that everybody can pass through, and nobody list.
    with tempfile.TemporaryDirectory(prefix="lg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        choices = [Walls(True, root), Walls(False, root), Walls(False, False)]
        for number, walls in enumerate(dict.fromkeys(choices)):
            base = Path(folder, str(number))
            base.mkdir(mode=0o711)
            base.chmod(0o711)
            sandboxes = Sandboxes(Walls(walls.namespaces, walls.other_user, why), base)
            job = sandboxes.job()
            ended = sandboxes.run(job, f"{__package__}.limits", [], Limits())
            if ended.code == 0 and not ended.reason:
                yield sandboxes
                return

            why = why or (ended.log.splitlines() or [ended.reason or "it did not start"])[-1]
    raise StartError(f"No sandbox for notebooks can be started here: {why}.")


def _copy_package(target: Path) -> None:
    """Copy labkit without what knows the right answers: expected values and solutions."""
    own = Path(__file__).resolve().parents[1]
    course = material.root()

    shutil.copytree(own, target / "labkit", ignore=shutil.ignore_patterns("__pycache__", "_course"))
    for path in (target / "labkit" / "course" / "exercises").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(trial_source.without_answers(path.name, text), encoding="utf-8")
    brought = target / "labkit" / "_course"
    scripts = course / "notebooks" / "scripts"
    if scripts.is_dir():
        shutil.copytree(scripts, brought / "notebooks" / "scripts")
    full = shutil.ignore_patterns("full")
    if (course / "data").is_dir():
        shutil.copytree(course / "data", brought / "data", ignore=full)
    for path in (target, *target.rglob("*")):  # whatever this process's umask
        path.chmod(0o755 if path.is_dir() else 0o644)


def _free_user(taken: set[int]) -> int:
    """Return a number that no account has and under which nothing runs."""
    accounts = {entry.pw_uid for entry in pwd.getpwall()}
    busy = set(map(_user_of, psutil.process_iter()))
    free = [u for u in range(FIRST_USER, LAST_USER) if u not in accounts | busy | taken]
    return random.choice(free)  # another run of labkit grade may be about to choose one, too


def _user_of(process: psutil.Process) -> int | None:
    """Return the user that a process runs as, None if it has ended."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return int(process.uids().real)
    except psutil.Error:
        pass
    return None


def _as_user(user: int | None) -> list[str]:
    """Return the words before a command that run it as another user, without any group."""
    if user is None:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def _give(folder: Path, user: int) -> None:
    """Make a folder and all in it another user's, who alone can enter it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)
    folder.chmod(0o700)


def _bind(source: str, place: str) -> str:
    if os.path.islink(source):  # /bin, where it is a link to /usr/bin
        return f"ln -s {shlex.quote(os.readlink(source))} .{shlex.quote(place)}\n"
    return _BIND.format(source=shlex.quote(source), place=shlex.quote(place))


def _devices() -> list[str]:
    gpus = sorted(str(p) for p in Path("/dev").glob("nvidia*") if p.is_char_device())
    return [path for path in (*DEVICES, *gpus) if os.path.exists(path)]


def _is_in(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


# -- limits that this process watches -------------------------------------------------------------


def _follow(process: subprocess.Popen[bytes], limits: Limits, stopped: threading.Event) -> Ended:
    """Wait for the end of a run, and bring it about when a limit is reached."""
    begun, ended, served = time.monotonic(), Ended(), ServedTime(process.pid)
    try:
        while True:
            try:
                ended.code = process.wait(times.GRADED_LOOK)
                break
            except subprocess.TimeoutExpired:
                pass
            ended.memory = max(ended.memory, memory_of(process.pid, limits.memory))
            if ended.memory > limits.memory:
                ended.reason = f"it took more than {limits.memory >> 20} MiB of memory"
            elif served.seconds() > limits.whole:
                ended.reason = f"it took {time.monotonic() - begun:.0f} s"
            elif stopped.is_set():
                ended.reason = "somebody stopped it"
            if ended.reason:
                break
    finally:
        _end(process)
        ended.seconds = time.monotonic() - begun
    return ended


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run: the first process of its namespaces dies with its parent, a warden ends all that
    is below it when it is asked to."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(times.GRADED_ENDED.seconds())
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_user(user: int) -> None:
    """Kill everything that runs as a user that only this sandbox has."""
    deadline = time.monotonic() + times.GRADED_ENDED.seconds()
    while time.monotonic() < deadline:
        left = [p for p in psutil.process_iter() if _user_of(p) == user]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(times.DESCENDANTS_LOOK)
