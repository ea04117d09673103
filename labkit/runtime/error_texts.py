"""Word the errors of ranks: what they share once, and what to write instead of an everyday slip.

A port, an address, a process id, a time in torch's log, and the rank's own number tell nothing of
the mistake: sixteen ranks would show one error sixteen times. The folded text says what it leaves
out. Any other difference keeps errors apart: a shape, a name, a value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

from ..base.errors import red
from ..base.rank_names import bold_label, fold, has_rate, how_to_replace, label

if TYPE_CHECKING:  # a check that shows a wrong answer needs no ipyparallel
    from .cluster import RankCluster

#: Name, message and formatted lines of what a rank raised.
Raised = tuple[str, str, list[str]]

_HOST = r"(?:\[(?!\d+\])[\w.:%-]+\]|\b\d{1,3}(?:\.\d{1,3}){3}|\blocalhost|\btcp://[\w.-]+)"

#: What counts, though a number in it may be the rank's own: places, exit codes and sizes.
_COUNTS = (
    r"^  (?:-->|   ) +\d+ .*$|\bIn\[\d+\]|\b(?i:line|code|signal|errno):? \d+|\.\w+:\d+"
    r"|\b(?i:sizes?|shapes?)\b[^;\n]*|[\[(]\d+, ?[\d, ]*[\])]"
)
_TOKEN = re.compile(
    rf"{_HOST}:(?P<port>\d{{2,5}})\b"
    rf"|\('?{_HOST}'?, (?P<port_of_pair>\d{{2,5}})\)"
    r"|\b(?i:port)(?:=|:? )(?P<port_named>\d{2,5})\b"
    r"|\bat (?:address )?(?P<address>0x[0-9a-fA-F]+)"
    r"|\((?P<address_of_frame>0x[0-9a-f]+) in "
    r"|\b(?i:pids?|process id)(?:\(s\))?(?:=|:? )(?P<pid>\d+(?:, \d+)*)\b"
    r"|/proc/(?P<pid_of_path>\d+)"
    r"|(?<=\[[EW]\d{4} )(?P<time>[\d:.]+)"
    rf"|{_COUNTS}"
    r"|(?:(?<![\w.,-])|(?<=\b[Rr]ank))(?P<number>\d+)(?![\w]|[.,]\d)",
    re.MULTILINE,
)
_SAID = {
    "port": "other ports",
    "address": "other addresses",
    "pid": "other process ids",
    "time": "other times",
    "number": "their own rank numbers",
}

#: The first line of a warning: of labkit's form, Python's, the logging module's and torch's.
_WARNING = re.compile(
    r"^(?:\w*Warning \(|\S+:\d+: \w*Warning: |(?:WARNING|ERROR|CRITICAL):"
    r"|(?:\[rank\d+\]:)?\[[EW]\d{4} ).*",
    re.MULTILINE,
)


class _Found(NamedTuple):
    """Something in a text that may differ."""

    part: int  #: of the texts of a rank
    kind: str
    text: str
    end: int


@dataclass
class _Group:
    """Ranks whose texts are alike, and those of the first one."""

    ranks: list[int]
    texts: Sequence[str]
    found: list[_Found]
    is_own: dict[int, bool] = field(default_factory=dict)  #: number at this place: the rank's own
    differ: set[int] = field(default_factory=set)  #: places at which another rank has another text

    def take(self, rank: int, found: Sequence[_Found]) -> bool:
        """Add a rank whose texts are the same but for what was found, unless a value differs."""
        is_own = {}
        for place, (mine, other) in enumerate(zip(self.found, found, strict=True)):
            if mine.kind != "number":
                continue
            own = mine.text == str(self.ranks[0]) and other.text == str(rank)
            if not own and mine.text != other.text:
                return False
            is_own[place] = own
        if self.is_own not in ({}, is_own):  # the same on two ranks by chance
            return False
        self.is_own = is_own
        self.ranks.append(rank)
        pairs = enumerate(zip(self.found, found, strict=True))
        self.differ |= {place for place, (mine, other) in pairs if mine.text != other.text}
        return True

    def worded(self) -> tuple[str, ...]:
        """Return the texts, each with what it leaves out behind the line that has it."""
        texts = []
        for part, text in enumerate(self.texts):
            left_out = [self.found[place] for place in sorted(self.differ)]
            left_out = [found for found in left_out if found.part == part]
            if left_out:
                said = " and ".join(dict.fromkeys(_SAID[found.kind] for found in left_out))
                end = text.find("\n", left_out[-1].end)
                end = len(text) if end < 0 else end
                text = f"{text[:end]} ({said} on the others){text[end:]}"
            texts.append(text)
        return tuple(texts)


def fold_errors(texts: Mapping[int, Sequence[str]]) -> list[tuple[list[int], tuple[str, ...]]]:
    """Join ranks whose errors are the same but for what differs anyway, as ``rank_names.fold``:
    for each group its ranks and the texts of the first one, with what they leave out. ``texts`` is
    what is said of each rank's error, as many texts on each."""
    return _fold({rank: tuple(parts) for rank, parts in texts.items()}, re.compile(r"(?s).+"))


def fold_warnings(texts: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Join ranks with equal texts; their warnings may differ in what differs anyway."""
    folded = _fold({rank: (text,) for rank, text in texts.items()}, _WARNING)
    return [(ranks, text) for ranks, (text,) in folded]


def _fold(
    texts: Mapping[int, tuple[str, ...]], where: re.Pattern[str]
) -> list[tuple[list[int], tuple[str, ...]]]:
    if len(fold(texts)) == 1:
        return fold(texts)
    alike: dict[tuple[str, ...], list[_Group]] = {}
    groups = []
    for rank, parts in sorted(texts.items()):
        found = [f for number, text in enumerate(parts) for f in _find(number, text, where)]
        known = [] if has_rate(parts) else alike.setdefault(_rest(parts, found), [])
        if not any(group.take(rank, found) for group in known):
            known.append(_Group([rank], parts, found))
            groups.append(known[-1])
    return [(group.ranks, group.worded()) for group in groups]


def _find(part: int, text: str, where: re.Pattern[str]) -> Iterator[_Found]:
    for stretch in where.finditer(text):
        for match in _TOKEN.finditer(text, *stretch.span()):
            if match.lastgroup is not None:
                kind = match.lastgroup.partition("_")[0]
                yield _Found(part, kind, match[match.lastgroup], match.end(match.lastgroup))


def _rest(parts: Sequence[str], found: Sequence[_Found]) -> tuple[str, ...]:
    """Return texts without what was found in them."""
    rest = []
    for number, text in enumerate(parts):
        pieces, begin = [], 0
        for token in found:
            if token.part == number:
                pieces += [text[begin : token.end - len(token.text)], token.kind]
                begin = token.end
        rest.append("\0".join([*pieces, text[begin:]]))
    return tuple(rest)


def error_texts(errors: Mapping[int, Raised]) -> tuple[str, list[str]]:
    """Fold errors: one summary, one line an error, and one block of lines an error."""
    texts = {}
    for rank, (name, message, lines) in errors.items():
        line = name + (f": {message}" if message else "")
        texts[rank] = (line, "\n".join(lines or [f"{name}: {message}"]))
    summary, blocks = [], []
    for ranks, (line, text) in fold_errors(texts):
        summary.append(f"{label(ranks)}: {line}")
        head, *rest = text.split("\n")
        title, _, tail = head.partition(":")
        head = f"{red(title)}:{tail}" if tail else red(title)
        blocks.append("\n".join([f"{bold_label(ranks, coloured=False)}: {head}", *rest]))
    return "\n".join(summary), blocks


# -- everyday slips: Python and torch know nothing of the lab, so their errors cannot name them ----

#: Returns the names that the notebook's cells have defined, with their values.
names_of_notebook: Callable[[], Mapping[str, object]] = dict

_UNKNOWN = re.compile(r"name '(\w+)' is not defined")

#: What torch says to a line that needs a GPU where there is none, and what to write instead.
_ON_CPU = {
    re.compile(pattern): f"This lab computes on the CPU: {advice}"
    for pattern, advice in {
        r"nccl\w* requires at least one CUDA|ProcessGroupNCCL is only supported with GPUs|"
        r"doesn't have NCCL built in": (
            'NCCL needs a GPU for each rank; write "gloo", or leave the backend out.'
        ),
        r"No backend type associated with device type cuda": (
            'write device.type where the line, or its mesh, has "cuda".'
        ),
        r"Attempting to deserialize object on a CUDA device": (
            "write torch.load(…, map_location=device)."
        ),
        r"Found no NVIDIA driver|Torch not compiled with CUDA|No CUDA GPUs are available|"
        r"no CUDA-capable device|CUDA driver version is insufficient|"
        r"Cannot access accelerator device|less than the number of accelerators available: 0|"
        r"device_ids and output_device arguments only": (
            "write .to(device) and device=device, and DDP(model) without device_ids."
        ),
    }.items()
}
#: A process may open no more files; what ends with "in system" is another limit.
_NO_FILE = re.compile(r"Too many open files(?! in system)")


def add_slips(
    cluster: RankCluster, errors: Mapping[int, Raised], summary: str, blocks: list[str]
) -> tuple[str, list[str]]:
    """Return summary and blocks of an error with a sentence for each slip in it."""
    found = [
        sentence
        for name, message, _ in errors.values()
        if (sentence := explain_slip(name, message, cluster)) is not None
    ]
    full = [rank for rank, (_, message, _) in errors.items() if _NO_FILE.search(message)]
    hints = list(dict.fromkeys([*found, *([without_files(full)] if full else [])]))
    return "\n".join([summary, *hints]), [*blocks, *hints]


def without_files(ranks: Sequence[int]) -> str:
    """Return what helps ranks that may open no more files."""
    have = f"{label(ranks).capitalize()} {'has' if len(ranks) == 1 else 'have'}"
    return (
        f"{have} no file descriptor left (ulimit -n is the limit). Close files and sockets that "
        f"you no longer need; {how_to_replace(ranks)}."
    )


def explain_slip(name: str, message: str, cluster: RankCluster) -> str | None:
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
    return next((advice for said, advice in _ON_CPU.items() if said.search(message)), None)


def of_notebook(name: str, known: Mapping[str, object]) -> str:
    """Return how a name of the notebook's gets to the ranks."""
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
