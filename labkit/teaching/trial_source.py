"""Take out of an exercise's module what knows the right answer.

A sandbox has the trials of the course's exercises, and not what they should give. A trial is code
that other processes import, so that its module is copied, without the definitions that the trial
does not use: the expected values, the mistakes, the hints.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

#: A module of one exercise; the others of a folder are shared by several.
EXERCISE = re.compile(r"ex\d+\.py")
#: What a sandbox calls; what it must not have.
TRIAL, EXPECTED = "trial", "expected"


def without_answers(name: str, source: str) -> str:
    """Return the source of a module without what its trial does not need.

    Parameters
    ----------
    name
        Of the file. Of a module that several exercises share, only ``expected`` is taken out,
        unless something else in it needs that.
    """
    tree = ast.parse(source)
    defined = {name for node in tree.body for name in _names(node)}
    wanted = {TRIAL} if EXERCISE.fullmatch(name) else defined - {EXPECTED}
    kept: set[str] = set()
    while wanted:
        kept |= wanted
        found = {used for node in tree.body if kept & set(_names(node)) for used in _used(node)}
        wanted = (found & defined) - kept
    tree.body = [part for node in tree.body for part in _keep(node, kept)]
    return ast.unparse(tree) + "\n"


def _keep(node: ast.stmt, kept: set[str]) -> Iterator[ast.stmt]:
    """Yield a statement at the top of a module if it is kept, of an import the kept names."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield node
            return
        node.names = [alias for alias in node.names if _bound(alias) in kept]
        if node.names:
            yield node
        return
    names = set(_names(node))
    if not names or names & kept:
        yield node


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from map(_bound, node.names)
        return
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    for target in targets:  # of any other statement, all that it may assign
        for inside in ast.walk(target):
            if isinstance(inside, ast.Name) and isinstance(inside.ctx, ast.Store):
                yield inside.id


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _used(node: ast.stmt) -> Iterator[str]:
    return (inside.id for inside in ast.walk(node) if isinstance(inside, ast.Name))
