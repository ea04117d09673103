"""Number what ranks say of themselves as the lab does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..wire.samples import Group, GroupKey, MessageKey, Sample, Wait


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
    return replace(
        answer,
        rank=rank,
        wait=_wait(answer.wait, answer.groups, names),
        groups=groups,
        issuers=tuple(
            replace(issuer, wait=_wait(issuer.wait, answer.groups, names))
            for issuer in answer.issuers
        ),
    )


def _group(group: Group, names: _Names) -> Group:
    def end(message: MessageKey) -> MessageKey:
        kind, peer, tag, number = message
        return kind, names[peer], tag, number

    return replace(
        group,
        key=names.key(group.key),
        posted={(kind, names[peer], tag): n for (kind, peer, tag), n in group.posted.items()},
        entries={
            number: entry if entry.root is None else replace(entry, root=names[entry.root])
            for number, entry in group.entries.items()
        },
        sizes={end(message): size for message, size in group.sizes.items()},
        dropped=frozenset(map(end, group.dropped)),
    )


def _wait(wait: Wait | None, groups: Mapping[GroupKey, Group], names: _Names) -> Wait | None:
    if wait is None:
        return None
    there = (o for o in wait.options if o[0] in groups or wait.kind == "new_group")
    return replace(
        wait,
        options=tuple((names.key(key), number) for key, number in there),
        peer=names[wait.peer],
        root=None if wait.root is None else names[wait.root],
        making=None if wait.making is None else names.key(wait.making),
        messages=tuple(
            replace(end, group=names.key(end.group), peer=names[end.peer]) for end in wait.messages
        ),
    )
