"""Describe all that a process takes over from the one that starts it.

A process that was forked from another one (``zygote``) stands in for one that is started here, if
the two could not be told apart: what cannot be set afterwards has to be the same.
"""

from __future__ import annotations

import ctypes
import fnmatch
import os
import resource
import site
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Variables that nothing reads while it is being imported: they may differ.
FREE = (
    "_",
    "CLICOLOR*",
    "COLUMNS",
    "FORCE_COLOR",
    "GIT_PAGER",
    "GLOO_SOCKET_IFNAME",  # by each process group
    "IPP_*",
    "JPY_*",
    "LABKIT_*",
    "LINES",
    "MPLBACKEND",
    "NCCL_SOCKET_IFNAME",  # by each process group
    "NO_COLOR",
    "OLDPWD",
    "OMP_NUM_THREADS",  # set by torch.set_num_threads
    "PAGER",
    "PATH",  # when something is started
    "PET_*",  # by torchrun's parser
    "PWD",
    "PYDEVD_*",
    "PYTEST_*",
    "PYTHONUNBUFFERED",  # by Python for the streams of the process that starts, which are others
    "SHLVL",
    "TERM",
    "TMPDIR",  # noted at the first use; see ``adapt``
    "TORCHINDUCTOR_CACHE_DIR",  # by the compiler at each use; it sets it at the first
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",  # by torchrun at each start of its workers
    "TORCH_FR_BUFFER_SIZE",  # by the recorder, when a process makes its first group
    "TORCH_NCCL_TRACE_BUFFER_SIZE",  # its former name
)
#: The level of the log of torch's C++, which reads it when it is imported, and can again by
#: ``c10::initLogging()``, as its library calls it.
CPP_LOG_LEVEL, _INITIALIZER = "TORCH_CPP_LOG_LEVEL", "_ZN3c1011initLoggingEv"
#: Of a process's state as the kernel has it: users, groups, rights.
_RIGHTS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Cap")
_PACKAGE = Path(__file__).parents[1]


def describe() -> dict[str, Any]:
    """Describe what this process has and its children will have, as JSON can hold it."""
    status = Path("/proc/self/status").read_text().splitlines()
    spaces = Path("/proc/self/ns")
    return {
        "python": [sys.executable, sys.version, sys.prefix],
        "code": _code(),
        "rights": [line for line in status if line.startswith(_RIGHTS)],
        "namespaces": sorted(os.readlink(space) for space in spaces.iterdir()),
        "root": os.readlink("/proc/self/root"),
        "cgroup": Path("/proc/self/cgroup").read_text(),
        "memory": Path("/proc/self/oom_score_adj").read_text(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": {name: hard for name, (_, hard) in _limits().items()},
    }


def describe_settings() -> dict[str, Any]:
    """Describe what :func:`take_over` can set in another process."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "folder": os.getcwd(),
        "umask": umask,
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": {name: soft for name, (soft, _) in _limits().items()},
    }


def take_over(settings: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Set here what :func:`describe_settings` has found elsewhere, and all variables."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(settings["folder"])
    os.umask(settings["umask"])
    os.sched_setaffinity(0, settings["cores"])
    for name, soft in settings["limits"].items():
        number = getattr(resource, name)
        resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))


def adapt(environment: Mapping[str, str]) -> None:
    """Do what reading these variables at the start of this process would have done."""
    time.tzset()
    tempfile.tempdir = None
    torch, threads = sys.modules.get("torch"), environment.get("OMP_NUM_THREADS", "")
    if torch is not None and threads:
        torch.set_num_threads(int(threads.partition(",")[0]))
    if CPP_LOG_LEVEL in environment and (initialize := _find_log_initializer()) is not None:
        initialize()


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Name the variables in which two environments differ, those left out that may."""
    free = [*FREE, CPP_LOG_LEVEL] if _find_log_initializer() and CPP_LOG_LEVEL in other else FREE
    names = sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))
    return [n for n in names if not any(fnmatch.fnmatchcase(n, pattern) for pattern in free)]


def _find_log_initializer() -> Any:
    """Return the function of torch's C++ that reads the level, None where there is none here."""
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None:
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    except OSError:
        return None
    function = getattr(library, _INITIALIZER, None)
    if function is not None:
        function.restype = None
    return function


def _limits() -> dict[str, tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def _code() -> list[Any]:
    """Describe what would be imported: labkit's own files, and the folders of all other packages.

    Whatever is installed, or taken away, changes the folder that it is in.
    """
    own = list(_times(_PACKAGE))
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    others = [os.stat(folder).st_mtime_ns for folder in folders if os.path.isdir(folder)]
    return [str(_PACKAGE), len(own), max(own), others]


def _times(folder: str | Path) -> Iterator[int]:
    """Go through the times of the last change of a folder's Python files (without ``Path``, which
    takes four times as long).
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _times(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.stat().st_mtime_ns
