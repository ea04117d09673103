"""A class is shown in a notebook and as a page that nothing in a learner's folder can change."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import labkit
from labkit import DataError, UsageError
from labkit.__main__ import app
from labkit.figures import picture
from labkit.teaching import classroom

EVIL = '"><script>alert(1)<'


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """Return a folder of 45 learners, of whom one has an evil name and one no progress."""
    entry = {"passed": True, "tries": 2, "mistakes": {"<img src=x>": 1}}
    folder = tmp_path / "homes"
    for name in [EVIL, *(f"learner-{i:02}" for i in range(43))]:
        (folder / name).mkdir(parents=True)
        content = {"version": 1, "notebook": "01_point_to_point.ipynb", "exercises": {}}
        content["exercises"] = {"00-1": entry, "01-1": {"tries": 1}, "my1": entry}
        (folder / name / "progress.json").write_text(json.dumps(content))
    (folder / "nobody").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _draw_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the images out, which ``tests/unit/figures`` looks at."""
    monkeypatch.setattr(picture, "_render", lambda figure, note: (b"", 0))


class Page(HTMLParser):
    """Collect the elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_is_one_accessible_file_without_scripts(homes: Path, tmp_path: Path) -> None:
    labkit.classroom(homes).save(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text("utf-8"))
    assert {tag for tag, _ in page.found}.isdisjoint({"script", "link", "iframe", "b"})
    images = page.all("img")
    assert len(images) == 2  # 44 learners are more than one figure shows
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in images)
    assert "learner-00: 2 of" in (images[0]["alt"] or "")
    assert len(page.all("table")) == len(page.all("caption")) == 4
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    assert page.all("html") == [{"lang": "en"}]
    assert EVIL in page.text  # as text, and nothing else


def test_names_can_be_hidden(homes: Path) -> None:
    shown = labkit.classroom(homes, anonymous=True)
    for text in (shown.page(), repr(shown), *shown._repr_mimebundle_().values()):
        assert "learner-0" not in text
        assert "nobody" not in text
        assert "learner 45" in text
    before = list(shown.learners)
    (homes / "aaa-new").mkdir()
    assert shown.refresh()
    assert shown.learners[:45] == before  # whoever was there keeps the number
    assert not shown.refresh()


def test_a_notebook_watches_until_the_stop_button(
    homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = labkit.classroom(homes)
    with pytest.raises(UsageError, match="Only a notebook"):
        shown.watch()
    looks = []

    class Handle:
        def update(self, value: classroom.Classroom) -> None:
            looks.append(value.learners[0].name)
            raise KeyboardInterrupt

    def display(value: classroom.Classroom, *, display_id: bool) -> Handle:
        looks.append(value.learners[0].name)
        (homes / "!new").mkdir(exist_ok=True)
        return Handle()

    monkeypatch.setattr(classroom.shell, "of_notebook", lambda: object())
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(classroom.times, "CLASS_REFRESH", 0.0)
    shown.watch()
    assert looks == [EVIL, "!new"]
    shown.watch(hours=0)  # ends by itself


def test_the_command(homes: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    shown = run(app, ["class", str(homes), "--anonymous"])
    assert shown.exit_code == 0
    assert "learner 44" in shown.output
    saved = run(app, ["class", str(homes), "--html", str(tmp_path / "page.html")])
    assert (saved.exit_code, (tmp_path / "page.html").exists()) == (0, True)
    refused = run(app, ["class", str(tmp_path / "nowhere")])
    assert refused.exit_code == 2
    assert "nowhere cannot be read as a folder" in refused.output
    with pytest.raises(DataError, match="cannot be written"):
        labkit.classroom(homes).save("/proc/page.html")
