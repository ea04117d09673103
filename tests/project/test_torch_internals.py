"""Torch's private names stand in one place: a later torch is then mended there alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit

ROOT = Path(labkit.__file__).parent
HOME = ROOT / "rank" / "torch_internals"
#: Private to torch: a name with an underscore below it, and what only its C++ has.
PRIVATE = re.compile(
    r"^(?:torch|dist|rpc)(?:\.\w+)*\.(?!__)_\w+|^torch\.ops\.|^\w*c10d\._|_c10d_functional"
)
#: Trials that need a store or RPC of their own, which torch makes by private functions only. They
#: turn nothing off: the check of that exercise fails, with torch's error.
TRIALS = {
    "dist.distributed_c10d._get_default_store",
    "rpc._cleanup_python_rpc_handler",
    "rpc._destroy_rref_context",
    "rpc._get_current_rpc_agent",
    "rpc._init_rpc_backend",
    "rpc._is_current_rpc_agent_set",
    "rpc._reset_current_rpc_agent",
    "rpc.dist_autograd._init",
    "torch._C",
    "torch._C.Future",
}
EXERCISES = ROOT / "course" / "exercises"
GUARD = ROOT / "guard" / "torch_internals.py"
OTHERS = sorted(p for p in ROOT.rglob("*.py") if HOME not in p.parents and p != GUARD)


def private_names(text: str) -> Iterator[str]:
    """Yield each private name of torch in some Python: attributes, imports and strings."""
    for node in ast.walk(ast.parse(text)):
        found = ""
        if isinstance(node, ast.Attribute):
            found = ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for alias in node.names:
                if PRIVATE.search(f"{node.module}.{alias.name}"):
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if PRIVATE.search(alias.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = node.value if re.fullmatch(r"[\w.]+", node.value) else ""
        if PRIVATE.search(found):
            yield found


def test_no_other_module_names_torchs_insides():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in OTHERS
        for name in private_names(path.read_text())
        if name not in (TRIALS if EXERCISES in path.parents else set())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "dist.distributed_c10d._world.pg_map",
        "c10d._world",
        "torch._C._distributed_c10d.Work",
        "from torch._C import _distributed_c10d",
        "from torch._C._profiler import RecordScope",
        "from torch.autograd import _enable_profiler",
        "import torch._C",
        "torch.autograd._profiler_enabled()",
        "torch.ops._c10d_functional.all_reduce",
        "NAMESPACES = ('_c10d_functional',)",
    ],
)
def test_a_private_name_is_seen_however_it_is_reached(line):
    assert list(private_names(line))


@pytest.mark.parametrize("line", ["torch.__version__", "dist.all_reduce(x)", "self._work"])
def test_public_names_are_free(line):
    assert not list(private_names(line))
