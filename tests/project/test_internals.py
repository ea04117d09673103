"""Only the files made for it name what is private in ipyparallel, IPython and ipykernel."""

from __future__ import annotations

import ast
from pathlib import Path

import labkit
from labkit.launch import engine_internals, few_messages, hub_internals, ipyparallel_internals
from labkit.rank import asyncio_internals, debugger_internals, ipython_internals

PACKAGE = Path(labkit.__file__).parent
MODULES = (ipyparallel_internals, ipython_internals, asyncio_internals)
PARTS = (few_messages, hub_internals, engine_internals, debugger_internals)
OWN = {Path(module.__file__ or "") for module in (*MODULES, *PARTS)}
#: Also what something public is called: an output of a notebook's cell (nbformat).
PUBLIC = {"outputs"}


def private_names() -> set[str]:
    """Return the names that the lists of features have, without their classes."""
    lists = [module.FEATURES for module in MODULES]
    features = [f for found in lists for library in found.values() for f in library.values()]
    return {name.partition(".")[2] for feature in features for name in feature.names} - PUBLIC


def named_in(tree: ast.Module) -> set[str]:
    """Return the attributes, methods and texts of a module that are single names.

    Left out is what the module itself has made: its functions, and the methods of classes that
    stand on no other class.
    """
    own = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and not n.bases)]
    made = {n.name for place in own for n in place.body if isinstance(n, ast.FunctionDef)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names - made


def test_no_other_module_names_them() -> None:
    private = private_names()
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if path not in OWN
        for name in named_in(ast.parse(path.read_text(encoding="utf-8"))) & private
    }
    assert found == set()


def test_these_files_name_all_that_they_list() -> None:
    named = set().union(*(named_in(ast.parse(p.read_text(encoding="utf-8"))) for p in OWN))
    assert private_names() <= named
