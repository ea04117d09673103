"""Tell whether anybody else could change what a path names.

On a machine with several users, labkit takes code and settings only from places where what is
there was put by this user or by root, and stays as it is: each folder on the way belongs to one
of them, nobody else can write there, and no link on the way was made by somebody else. A folder
such as /tmp, where everybody can write but only touch what is their own (the sticky bit), is good
enough to make a folder of one's own in, under a name that nobody can know before.

Group-writable is private where the group has nobody else in it, as for a user's own group.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Collection
from functools import cache
from pathlib import Path

#: Links on the way to one file, as Linux allows them.
MAX_LINKS = 40
#: Groups below are the system's; 100 is "users", which on many machines is everybody's.
FIRST_USER_GROUP, USERS = 1000, 100


def unsafe_reason(
    path: str | os.PathLike[str], *, crowded: bool = False, friends: Collection[int] = ()
) -> str:
    """Return why somebody else could change what ``path`` names, "" if only this user and root can.

    What does not exist is as good as the folder in which it would be made.

    Parameters
    ----------
    crowded
        Whether ``path`` is only the place for a new folder of a random name: others may write
        there if they cannot touch what is not theirs.
    friends
        Other users who are trusted as root is, by number.

    Examples
    --------
    >>> from labkit.base import trust
    >>> trust.unsafe_reason("/"), trust.unsafe_reason("/tmp", crowded=True)
    ('', '')
    >>> trust.unsafe_reason("/tmp/labkit")
    '/tmp/labkit is not there, and everybody can make it'
    """
    trusted = {0, os.geteuid(), *friends, *_strangers_like_root()}
    here, links = "/", 0
    status = os.lstat(here)
    left = _parts(os.path.join(os.getcwd(), path))
    while left:
        part = left.pop()
        if part == "..":  # of a folder without a link in its name
            here = os.path.dirname(here)
            status = os.lstat(here)
            continue
        writers = _who_else_writes(here, status)
        inside = os.path.join(here, part)
        try:
            found = os.lstat(inside)
        except FileNotFoundError:
            return f"{inside} is not there, and {writers} can make it" if writers else ""
        except OSError as error:
            return f"{inside} cannot be looked at ({error.strerror})"
        if found.st_uid not in trusted:
            kind = "is a link that was made by" if stat.S_ISLNK(found.st_mode) else "belongs to"
            return f"{inside} {kind} {_name(found.st_uid)}"
        if writers and not status.st_mode & stat.S_ISVTX:
            return f"{writers} can write to {here}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > MAX_LINKS:
                return f"{path} has too many links on its way"
            target = os.readlink(inside)
            left += _parts(target)
            if target.startswith("/"):
                here, status = "/", os.lstat("/")
            continue
        here, status = inside, found
    writers = _who_else_writes(here, status)
    if not writers or (crowded and status.st_mode & stat.S_ISVTX):
        return ""
    return f"{writers} can write to {here}"


def unsafe_link_reason(path: str | os.PathLike[str]) -> str:
    """Return which link on the way to ``path`` somebody else has made, "" if none.

    For what is only written: others may write to its folder as well, if they cannot lead the
    writer elsewhere.
    """
    trusted = {0, os.geteuid(), *_strangers_like_root()}
    absolute = Path(os.path.join(os.getcwd(), path))
    for place in (*reversed(absolute.parents), absolute):
        try:
            found = place.lstat()
        except OSError:
            return ""  # whoever opens it will hear why
        if stat.S_ISLNK(found.st_mode):
            if found.st_uid not in trusted:
                return f"{place} is a link that was made by {_name(found.st_uid)}"
            if why := unsafe_link_reason(place.parent / os.readlink(place)):
                return why
    return ""


def installers() -> frozenset[int]:
    """Return who installed this Python and labkit: their code runs here anyway."""
    return frozenset({os.stat(os.__file__).st_uid, os.stat(__file__).st_uid})


def _parts(path: str) -> list[str]:
    """Split a path, its first part last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _who_else_writes(path: str, status: os.stat_result) -> str:
    """Return who besides its owner and root can write to a file or folder, "" if nobody."""
    if status.st_mode & stat.S_IWOTH and not stat.S_ISCHR(status.st_mode):
        return "everybody"
    if not status.st_mode & stat.S_IWGRP:
        return ""
    if _has_access_list(path):  # its group's bits stand for all that are named there
        return "whoever its access list names"
    return "" if _is_private(status.st_gid, os.geteuid()) else _group(status.st_gid)


def _has_access_list(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "system.posix_acl_access"))
    except (AttributeError, OSError):  # there is none, or no such thing on this system
        return False


@cache
def _is_private(group: int, user: int) -> bool:
    """Return whether nobody but this user and root is in a group.

    Where the users are in a directory on the network, those who have it as their first group
    cannot all be listed; so only a group that is called as its user counts, or one of the system.
    """
    names = {"root"}
    try:
        names.add(pwd.getpwuid(user).pw_name)
        found = grp.getgrgid(group)
    except KeyError:
        return False
    own = found.gr_name in names or (group < FIRST_USER_GROUP and group != USERS)
    first = {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group}
    return own and {*found.gr_mem, *first} <= names


@cache
def _strangers_like_root() -> frozenset[int]:
    """Return the number under which root is seen where it has none of its own.

    In a user namespace that knows few users, root's files belong to the "overflow" user, as those
    of everybody who is unknown there; nothing tells them apart.
    """
    try:
        overflow = int(Path("/proc/sys/fs/overflowuid").read_text())
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except (OSError, ValueError):
        return frozenset()
    known = any(int(first) <= overflow < int(first) + int(n) for first, _, n in ranges)
    return frozenset() if known else frozenset({overflow})


def _name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name!r}"
    except KeyError:
        return f"user {user}"


def _group(group: int) -> str:
    try:
        return f"group {grp.getgrgid(group).gr_name!r}"
    except KeyError:
        return f"group {group}"
