"""A notebook that a program runs, with nobody in front of it: nothing stands forever there."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from labkit.base import times, variables
from labkit.notebook import live

#: A thread of rank 0 could still come, as far as can be seen: suspected, and never proved.
DOUBTFUL = (
    "%%px\nimport threading, time\n"
    "threading.Thread(target=time.sleep, args=(999,), daemon=True).start()\n"
    "if rank == 1: dist.barrier()"
)


@pytest.mark.slow
def test_a_suspected_deadlock_ends_where_nbclient_runs_the_notebook(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """As ``jupyter execute`` and ``nbconvert --execute`` do."""
    for name in ("CI", live.LIVE, variables.SUSPECT):
        monkeypatch.delenv(name, raising=False)
    begin = (
        "import labkit, labkit.base.times\nlabkit.base.times.SUSPECT = 1.0\nlab = labkit.start(2)"
    )
    nb = new_notebook(cells=[new_code_cell(source) for source in (begin, DOUBTFUL)])
    limit = times.SUSPECT  # nbclient's own, for a cell that stands all the same
    with pytest.raises(CellExecutionError, match="SuspectedDeadlock"):
        NotebookClient(nb, timeout=limit, resources={"metadata": {"path": tmp_path}}).execute()
    (error,) = (out for out in nb.cells[1].outputs if out.output_type == "error")
    assert "rank 1 waits in barrier" in error.evalue
    nbformat.validate(nb)
