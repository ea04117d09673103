"""Say what to write instead, where an error of a rank comes from an everyday slip.

A name of the notebook in a cell of the ranks, a line for a GPU on a lab that has none: Python and
torch know nothing of the lab, so their errors cannot say it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType

from ..rank_names import how_to_replace, label
from .cluster import RankCluster

#: Name, message and formatted lines of what a rank raised.
Raised = tuple[str, str, list[str]]

#: Returns the names that the notebook's cells have defined, with their values.
names_of_notebook: Callable[[], Mapping[str, object]] = dict

_UNKNOWN = re.compile(r"name '(\w+)' is not defined")

#: What torch says to a line that needs a GPU, where there is none.
_NEEDS_GPU = re.compile(
    r"Found no NVIDIA driver|Torch not compiled with CUDA|No CUDA GPUs are available|"
    r"no CUDA-capable device|CUDA driver version is insufficient|Cannot access accelerator device|"
    r"less than the number of accelerators available: 0|device_ids and output_device arguments only"
)
_NEEDS_GPU_FOR_NCCL = re.compile(
    r"nccl\w* requires at least one CUDA|ProcessGroupNCCL is only supported with GPUs|"
    r"doesn't have NCCL built in"
)
_MESH_OF_GPUS = "No backend type associated with device type cuda"
_LOADS_TO_GPU = "Attempting to deserialize object on a CUDA device"
#: A process may open no more files; what ends with "in system" is another limit.
_NO_FILE = re.compile(r"Too many open files(?! in system)")
ON_CPU = "This lab computes on the CPU: "


def add(
    cluster: RankCluster, errors: Mapping[int, Raised], summary: str, blocks: list[str]
) -> tuple[str, list[str]]:
    """Return summary and blocks of an error with a sentence for each slip in it."""
    found = [
        sentence
        for name, message, _ in errors.values()
        if (sentence := explain(name, message, cluster)) is not None
    ]
    full = [rank for rank, (_, message, _) in errors.items() if _NO_FILE.search(message)]
    hints = list(dict.fromkeys([*found, *([without_files(full)] if full else [])]))
    return "\n".join([summary, *hints]), [*blocks, *hints]


def without_files(ranks: Sequence[int]) -> str:
    """Say what helps ranks that may open no more files."""
    have = f"{label(ranks).capitalize()} {'has' if len(ranks) == 1 else 'have'}"
    return (
        f"{have} no file descriptor left (ulimit -n is the limit). Close files and sockets that "
        f"you no longer need; {how_to_replace(ranks)}."
    )


def explain(name: str, message: str, cluster: RankCluster) -> str | None:
    """Return what to write instead of a line that has raised this; None if it is no known slip."""
    if name == "NameError" and (unknown := _UNKNOWN.match(message)):
        known = names_of_notebook()
        return of_notebook(unknown[1], known) if unknown[1] in known else None
    advice = for_cpu(message)
    if advice is None or any(place.device != "cpu" for place in cluster.places):
        return None
    return advice


def for_cpu(message: str) -> str | None:
    """Return what to write where there is no GPU, instead of a line that has raised this."""
    if _NEEDS_GPU_FOR_NCCL.search(message):
        return f'{ON_CPU}NCCL needs a GPU for each rank; write "gloo", or leave the backend out.'
    if _MESH_OF_GPUS in message:
        return f'{ON_CPU}write device.type where the line, or its mesh, has "cuda".'
    if _LOADS_TO_GPU in message:
        return f"{ON_CPU}write torch.load(…, map_location=device)."
    if _NEEDS_GPU.search(message):
        return f"{ON_CPU}write .to(device) and device=device, and DDP(model) without device_ids."
    return None


def of_notebook(name: str, known: Mapping[str, object]) -> str:
    """Say how a name of the notebook's gets to the ranks."""
    value = known[name]
    if line := _import(name, value):
        return f"{name} is imported in the notebook only: write {line} in the cell."
    if type(value).__module__.startswith("labkit."):
        what = "the lab, and belongs to" if _is_lab(value) else "an object of"
        return f"{name} is {what} the notebook: use it in a cell without %%px."
    what = "class" if isinstance(value, type) else "variable"
    what = "function" if isinstance(value, FunctionType) else what
    handle = next((other for other, found in known.items() if _is_lab(found)), "lab")
    return f"{name} is a {what} of the notebook: {handle}[{name!r}] = {name} gives it to the ranks."


def _is_lab(value: object) -> bool:
    return type(value).__module__ == "labkit.notebook.lab" and type(value).__name__ == "Lab"


def _import(name: str, value: object) -> str:
    """Return the line that imports a value under a name, "" if none does."""
    if isinstance(value, ModuleType):
        path = value.__name__
        return f"import {path}" if path == name else f"import {path} as {name}"
    module = getattr(value, "__module__", None)
    own = getattr(value, "__name__", None)
    if not (callable(value) and isinstance(own, str) and isinstance(module, str)):
        return ""
    if module == "__main__" or getattr(sys.modules.get(module), own, None) is not value:
        return ""
    return f"from {module} import {own}" + ("" if own == name else f" as {name}")


def of_ranks(name: str, ranks: Sequence[int], size: int) -> str:
    """Say where a name is that the notebook does not have, but these ranks do."""
    if name in ("torch", "dist"):
        whole = "torch" if name == "torch" else "torch.distributed as dist"
        return (
            f"{name} is imported on the ranks only: begin the cell with %%px, or write import "
            f"{whole} here."
        )
    where = "the ranks" if len(ranks) == size else label(ranks)
    return f"{name} is a name of {where}: begin the cell with %%px."


#: What torch says where there is no process group, and no way to form one.
_NO_GROUP = re.compile(
    r"Default process group has not been initialized|"
    r"env:// rendezvous: environment variable \w+ expected"
)


def of_group(message: str) -> str | None:
    """Say where the process group is, if the notebook has raised this for want of one."""
    if not _NO_GROUP.search(message):
        return None
    return "The process group is on the ranks, not in the notebook: begin the cell with %%px."
