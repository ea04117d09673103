"""Where the cursor is in what ranks will run."""

from __future__ import annotations

import pytest

from labkit.notebook.names import Place, find_place


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("x = ra|nk", None),
        ("%%px\nra|nk", Place("rank", 2)),
        ("%%px --ranks 1,2\n|", Place("", 0, " --ranks 1,2")),
        ("\n%%px\nx\nra|nk\ny", Place("x\nrank\ny", 4)),
        ("%%px --ra|\nrank", None),
        ("%%pxy\nra|nk", None),
        ("%%px", None),
        ("%px ra|nk\ny", Place("rank", 2)),
        ("y\n  %px ra|nk\nz", Place("rank", 2)),
        ("%p|x rank", None),
        ("x = '%px' + ra|nk", None),
    ],
)
def test_find_place(cell, expected):
    cursor = cell.find("|") if "|" in cell else len(cell)
    assert find_place(cell.replace("|", ""), cursor) == expected
