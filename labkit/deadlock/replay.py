"""Write situations into a log, and judge those of a log again.

Whoever saw a wrong verdict sends in the file of ``LABKIT_LOG=debug:labkit.log``. Each look at the
ranks is in it with all that the verdict rests on, so the verdict can be found again without them::

    python -m labkit.deadlock.replay labkit.log
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..wire.encoding import decode, encode
from ..wire.samples import Issuer, Sample
from .message import describe
from .needs import Situation, needs
from .wait_graph import Verdict, about, judge

#: What stands before a situation in a line of the log.
MARK = "judges: "


class Written:
    """A situation in one line of JSON, put together only if a log wants it."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation

    def __str__(self) -> str:
        return json.dumps(encode(self.situation), separators=(",", ":"))


class Briefly:
    """Samples in short, put into words only if a log wants them."""

    def __init__(self, samples: Mapping[int, Sample]) -> None:
        self.samples = samples

    def __str__(self) -> str:
        lines = []
        for rank, s in sorted(self.samples.items()):
            what = f"waits in {describe(s.wait, s.entry)}" if s.wait else s.state
            where = f" at {s.wait.where}" if s.wait and s.wait.where else ""
            still = ", still" if s.still else ""
            others = "".join(f", {about(_issuer(i), rank)}" for i in s.issuers)
            others += "".join(f", blind: {doubt}" for doubt in s.doubts)
            stamp = ".".join(map(str, s.stamp))
            lines.append(f"rank {rank} {what}{where}{still}, stamp {stamp}{others}")
        return "; ".join(lines) or "no answer"


def _issuer(issuer: Issuer) -> str:
    waits = f" waits in {describe(issuer.wait)}" if issuer.wait else ""
    return f"[{issuer.name}{waits}]"


def read(lines: Iterable[str]) -> Iterator[tuple[str, Situation]]:
    """Yield the situations of a log, each with what stands before it: time, process, module.

    Raises
    ------
    ProtocolError
        If another version of labkit has written them.
    """
    for line in lines:
        head, mark, text = line.partition(MARK)
        if mark:
            yield head, decode(Situation, json.loads(text))


def describe_verdict(verdict: Verdict) -> str:
    """Put a verdict into words."""
    if not verdict.suspected:
        return "nobody is stuck"
    text = f"proved {sorted(verdict.proved)}, suspected {sorted(verdict.suspected)}"
    return f"{text} ({'; '.join(verdict.doubts)})" if verdict.doubts else text


def explain(situation: Situation) -> list[str]:
    """Return the verdict and, for each wait of each rank, what it needs."""
    said = [describe_verdict(judge(situation))]
    for rank, sample in sorted(situation.samples.items()):
        said.append(f"  rank {rank} is {sample.state}" + (", still" if sample.still else ""))
        threads = [("main thread", sample.wait)] if sample.state != "idle" else []
        for who, wait in [*threads, *((i.name, i.wait) for i in sample.issuers)]:
            entry = sample.entry if wait is sample.wait else None
            what = f"waits in {describe(wait, entry)} {wait.where}" if wait else "is free"
            said.append(f"    {about(who, rank)}: {what}".rstrip())
            if wait is not None:
                said += [f"      {need}" for need in needs(situation, rank, wait)]
                said += [f"      doubt: {about(wait.doubt, rank)}"] if wait.doubt else []
        said += [f"    blind: {doubt}" for doubt in sample.doubts]
    return said


def main() -> None:
    """Print each verdict of a log again, with what every rank needed."""
    for file in sys.argv[1:]:
        with Path(file).open(encoding="utf-8") as lines:
            for head, situation in read(lines):
                print(head, "\n".join(explain(situation)), sep="")


if __name__ == "__main__":
    main()
