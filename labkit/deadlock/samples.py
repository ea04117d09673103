"""Number what ranks say of themselves as the lab does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..wire.samples import Group, GroupKey, Sample, Wait


def renumber(answers: Mapping[int, Sample]) -> dict[int, Sample]:
    """Turn the ranks that samples speak of into the lab's.

    Parameters
    ----------
    answers
        What ranks of the lab answered; inside, ranks are those of ``torch.distributed``, which
        a learner may have numbered differently.
    """
    names = _Names({a.rank: rank for rank, a in answers.items() if a.rank >= 0})
    return {rank: _sample(rank, answer, names) for rank, answer in answers.items()}


class _Names(dict[int, int]):
    """The lab's rank of each rank of ``torch.distributed``.

    One that gave no answer keeps its number where the two are the same for all others; else it
    gets one that no rank has, and that nothing is known of.
    """

    def __missing__(self, number: int) -> int:
        same = all(theirs == ours for theirs, ours in self.items())
        return number if same or number < 0 else -2 - number

    def key(self, group: GroupKey) -> GroupKey:
        return group[0], tuple(self[r] for r in group[1])


def _sample(rank: int, answer: Sample, names: _Names) -> Sample:
    groups = {names.key(key): _group(group, names) for key, group in answer.groups.items()}
    wait = None if answer.wait is None else _wait(answer.wait, answer.groups, names)
    return replace(answer, rank=rank, wait=wait, groups=groups)


def _group(group: Group, names: _Names) -> Group:
    posted = {(kind, names[peer], tag): count for (kind, peer, tag), count in group.posted.items()}
    return replace(group, key=names.key(group.key), posted=posted)


def _wait(wait: Wait, groups: Mapping[GroupKey, Group], names: _Names) -> Wait:
    options = tuple((names.key(key), number) for key, number in wait.options if key in groups)
    root = None if wait.root is None else names[wait.root]
    return replace(wait, options=options, peer=names[wait.peer], root=root)
