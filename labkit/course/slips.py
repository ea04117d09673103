"""Find the slip in a formula that gives just the numbers of a wrong answer."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations, zip_longest
from operator import setitem
from typing import Any

from .compare import same
from .mistakes import near

#: What is put into the formula, and what is said of it.
Change = tuple[ast.AST, str]

SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**",
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
#: What is mistaken for each other, in both directions.
OPERATORS = ((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.Gt, ast.GtE), (ast.Lt, ast.LtE),
             (ast.Gt, ast.Lt), (ast.GtE, ast.LtE), (ast.And, ast.Or))  # fmt: skip
FUNCTIONS = (("ceil", "floor", "round"), ("max", "min", "sum"))
KNOWN = {"ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt}
#: Of slips that give the same values so many are said.
MOST = 2
#: Of a longer part of the formula no more is shown than has to be.
SHORT = 24
#: What is said only where nothing else gives the same.
MORE = "with one more"


@dataclass(frozen=True)
class Formula:
    """Say what an exercise asks for as a formula of what it gives.

    Parameters
    ----------
    text
        Python: lines that set a name, if any, and last the value.
    names
        What else has a name in it, with spaces between.
    cases
        ``cases(world_size)``: for each value of the result (of all ranks), in order, those of the
        names.
    """

    text: str
    names: str
    cases: Callable[[int], Sequence[Sequence[Any]]]

    def tree(self) -> ast.Module:
        """Return the formula, whose value has the name ``_``."""
        *lines, last = self.text.splitlines()
        return ast.parse("\n".join([*lines, f"_ = {last}"]))

    def values(self, world_size: int) -> list[Any]:
        """Return what comes out of all cases."""
        return _values(self.tree(), self._named(world_size))

    def _named(self, world_size: int) -> list[dict[str, Any]]:
        names = self.names.split()
        return [dict(zip(names, case, strict=True)) for case in self.cases(world_size)]

    def slip(self, yours: Any, world_size: int) -> str:
        """Return what has to be changed in the formula for ``yours`` to come out; "" if that is
        more than one thing, or only a single value is wrong."""
        mine, right = _flat(yours), self.values(world_size)
        if sum(not same(*pair) for pair in zip_longest(mine, right)) < 2:
            return ""
        found = dict.fromkeys(said for said, wrong in self.slips(world_size) if near(mine, wrong))
        likely = sorted(found, key=_rank)
        likely = [said for said in likely if not said.startswith(MORE)] or likely
        return f"This is exactly what comes out {', or '.join(likely[:MOST])}." if likely else ""

    def slips(self, world_size: int) -> Iterator[tuple[str, list[Any]]]:
        """Yield each slip, and what comes out with it."""
        tree, cases = self.tree(), self._named(world_size)
        names = [name for name, value in cases[0].items() if type(value) in (int, float)]
        if isinstance(_values(tree, cases)[0], str | bool):  # too few values to tell names apart
            names = []
        for a, b in permutations(names, 2):
            wrong = [{**case, a: case[b]} for case in cases]
            yield _instead(b, a), _values(tree, wrong)
        for a, b in combinations(names, 2):
            wrong = [{**case, a: case[b], b: case[a]} for case in cases]
            yield f"with `{a}` and `{b}` exchanged", _values(tree, wrong)
        for node, put in _parts(tree):
            for new, said in _changes(node, names):
                put(new)
                yield said, _values(tree, cases)
            put(node)


def _parts(tree: ast.AST) -> Iterator[tuple[Any, Callable[[Any], object]]]:
    """Yield each part of a tree, and what puts something in its place."""
    for parent in list(ast.walk(tree)):
        for field, value in list(ast.iter_fields(parent)):
            if isinstance(value, list):
                yield from ((node, partial(setitem, value, k)) for k, node in enumerate(value))
            else:
                yield value, partial(setattr, parent, field)


def _rank(said: str) -> tuple[bool, ...]:
    """Return where a slip stands among those with the same values: the likely ones come first."""
    return not said.endswith("exchanged"), not said.startswith("without"), "`" in said


def _values(tree: ast.Module, cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return what comes out of all cases; nothing if one of them fails."""
    values = []
    try:
        code = compile(ast.fix_missing_locations(tree), "<formula>", "exec")
        for case in cases:
            names = {**KNOWN, **case}
            exec(code, names)
            values.append(names["_"])
    except Exception:  # a division by zero, say
        return []
    return _flat(values)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [part for item in value for part in _flat(item)]
    return [value]


def _changes(node: Any, names: Sequence[str]) -> Iterator[Change]:
    """Yield what may stand in the place of a part by a slip."""
    if isinstance(node, ast.BinOp):
        yield from _of_operation(node)
    elif isinstance(node, ast.BoolOp):
        yield from _of_condition(node)
    elif isinstance(node, ast.Compare):
        for op in _mistaken(node.ops[0]):
            new = ast.Compare(node.left, [op], node.comparators)
            yield new, _instead(SIGNS[type(op)], SIGNS[type(node.ops[0])])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from _of_call(node, node.func.id)
    elif isinstance(node, ast.Name) and node.id in names:
        for text in (f"{node.id} + 1", f"{node.id} - 1", f"{node.id} / 2", f"2 * {node.id}"):
            yield _read(text), _instead(text, node.id)
        for name in names:
            yield _read(name), f"with `{name}` in one place of `{node.id}`"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 1:
        for value in {node.value // 4, node.value // 2, node.value + 1, node.value * 2} - {0}:
            yield ast.Constant(value), f"with {value} in the place of {node.value}"
    if isinstance(node, ast.BinOp | ast.Name) and not isinstance(
        getattr(node, "ctx", 0), ast.Store
    ):
        for text in (f"{sign} {name}" for name in names for sign in "*/"):
            yield _read(f"({ast.unparse(node)}) {text}"), f"{MORE} `{text}`"


def _of_operation(node: ast.BinOp) -> Iterator[Change]:
    whole, rest = ast.unparse(node), _link(node.op, node.right)
    where = f" in `{whole}`" if len(whole) <= SHORT else ""
    yield node.left, f"without `{rest}`{where}"
    if isinstance(node.op, ast.Add | ast.Mult):
        yield node.right, f"without `{whole.removesuffix(rest[2:]).strip()}`{where}"
    for op in _mistaken(node.op):
        yield ast.BinOp(node.left, op, node.right), _instead(_link(op, node.right), rest)


def _link(op: ast.operator, right: ast.expr) -> str:
    """Return a sign and what follows it, in parentheses where it needs them."""
    return ast.unparse(ast.BinOp(ast.Name("x"), op, right)).removeprefix("x ")


def _of_condition(node: ast.BoolOp) -> Iterator[Change]:
    sign = SIGNS[type(node.op)]
    for op in _mistaken(node.op):
        yield ast.BoolOp(op, node.values), _instead(SIGNS[type(op)], sign)
    for value in node.values:
        rest = [v for v in node.values if v is not value]
        said = f"without `{sign} {ast.unparse(value)}`"
        yield ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0], said
        opposite = ast.BoolOp(node.op, [*rest, ast.UnaryOp(ast.Not(), value)])
        yield opposite, f"with the opposite of `{ast.unparse(value)}`"


def _of_call(node: ast.Call, name: str) -> Iterator[Change]:
    for other in (other for others in FUNCTIONS if name in others for other in others):
        one = other == "sum" and len(node.args) > 1
        args: list[ast.expr] = [ast.List(node.args, ast.Load())] if one else node.args
        options = [] if other == "sum" else node.keywords
        yield ast.Call(ast.Name(other, ast.Load()), args, options), _instead(other, name)
    for arg in node.args:
        text = ast.unparse(arg)
        alone = f": `{text}` alone" if len(node.args) > 1 and len(text) <= SHORT else ""
        yield arg, f"without `{name}`{alone}"


def _instead(new: str, old: str) -> str:
    return f"with `{new}` in the place of `{old}`"


def _read(text: str) -> ast.AST:
    return ast.parse(text, mode="eval").body


def _mistaken(op: ast.AST) -> list[Any]:
    return [b() for x, y in OPERATORS for a, b in ((x, y), (y, x)) if type(op) is a]
