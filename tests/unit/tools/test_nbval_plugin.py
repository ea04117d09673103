"""What the plugin says when nbval hides what it rests on."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.tools import nbval_plugin
from labkit.wire import state

NAMES = [name for feature in nbval_plugin.FEATURES.values() for name in feature.names]


def test_the_nbval_installed_here_hides_nothing() -> None:
    assert nbval_plugin.check() == []
    assert nbval_plugin.pytest_report_header() == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_hidden_is_in_the_header(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = state.folder_of("nbval")
    assert source is not None
    attribute = name.partition(".")[2]
    for file in ("kernel.py", "plugin.py"):
        text = (source / file).read_text()
        (tmp_path / file).write_text(text.replace(attribute, f"{attribute}_2"))
    monkeypatch.setattr(state, "folder_of", lambda package: tmp_path)
    [line] = nbval_plugin.pytest_report_header()
    assert line.startswith("labkit: nbval ")
    assert f"hides {name}: " in line
