"""What is shown of outcomes, without any rank."""

import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from labkit.base.rank_names import RANK_COLOURS
from labkit.notebook import shell, show
from labkit.wire.state import Outcome

from ..base.test_rank_colours import contrast


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def text(content):
    return {"data": {"text/plain": content}, "metadata": {}}


def test_show_writes_streams_then_results_in_rank_order(capsys):
    outcomes = [
        Outcome(0, stdout="hello\n", result=text("0")),
        Outcome(1, stdout="hello\n", stderr="careful\n", result=text("1")),
        Outcome(2, stdout="one\ntwo\n", result=text("0")),
    ]
    show.show(outcomes)
    out, err = (plain(text) for text in capsys.readouterr())
    assert out == "ranks 0–1: hello\nrank 2:\n  one\n  two\nranks 0, 2: 0\nrank 1: 1\n"
    assert err == "rank 1: careful\n"


def test_silent_ranks_say_nothing(capsys):
    show.show([Outcome(0), Outcome(1)])
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def published(monkeypatch):
    """Pretend to be in a notebook; return what is published there."""
    bundles = []
    monkeypatch.setattr(shell, "of_notebook", lambda: object())
    monkeypatch.setattr(show, "publish", lambda data, metadata=None, **_: bundles.append(data))
    return bundles


def test_a_long_output_is_folded_with_a_count(published, capsys):
    lines = [f"step {i} <&>" for i in range(1000)]
    show.show([Outcome(r, stdout="\n".join(lines) + "\n") for r in range(3)])
    (bundle,) = published
    assert capsys.readouterr().out == ""
    html = bundle["text/html"]
    assert "980 more lines</summary>" in html
    assert html.count("\nstep ") == 997  # the first of each of three parts follows a tag
    head, _, rest = html.partition("<details>")
    assert "step 9 &lt;&amp;&gt;" in head
    assert "step 10 " not in head
    assert rest.partition("</details>")[2].count("step ") == 10
    assert bundle["text/plain"].splitlines()[:2] == ["ranks 0–2:", "  step 0 <&>"]
    assert bundle["text/plain"].splitlines()[11] == "  … 980 more lines …"
    assert len(bundle["text/plain"].splitlines()) == 22
    assert "<script" not in html


def test_many_long_outputs_show_less_of_each(published):
    show.show([Outcome(r, stdout=f"{r}\n" * 500) for r in range(16)])
    assert len(published) == 16
    assert all("494 more lines" in bundle["text/html"] for bundle in published)


def test_what_is_not_worth_a_click_is_not_folded(published, capsys):
    show.show([Outcome(0, stdout="x\n" * 30)])
    assert published == []
    assert capsys.readouterr().out.count("x\n") == 30


def test_long_results_and_errors_are_folded_too(published):
    long = "\n".join(map(str, range(100)))
    show.show([Outcome(0, stderr=long, result=text(long))])
    grounds = ["error-background" in bundle["text/html"] for bundle in published]
    assert grounds == [True, False]


def test_colours_of_a_folded_output_are_left_out(published):
    show.show([Outcome(0, stdout="\x1b[31mred\x1b[0m\n" * 99)])
    assert "\x1b" not in published[0]["text/html"] + published[0]["text/plain"]


def test_a_terminal_gets_all_of_it(capsys):
    show.show([Outcome(0, stdout="x\n" * 500)])
    assert capsys.readouterr().out.count("x\n") == 500


def test_rich_results_come_under_their_label_with_what_describes_them(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(show, "publish", lambda *bundle: shown.append(bundle))
    image = {"data": {"image/png": "iVBO"}, "metadata": {"image/png": {"width": 9}}}
    show.show([Outcome(0, displays=[image]), Outcome(1, displays=[image, text("last")])])
    assert shown == [(image["data"], image["metadata"])]
    assert plain(capsys.readouterr().out) == "ranks 0–1:\nrank 1: last\n"


@pytest.fixture
def page(monkeypatch, capsys):
    """Pretend to be in a notebook; return its displays by their names, as they are now."""
    there = {}

    def publish(data, metadata=None, *, name="", update=False):
        assert update == (name in there)
        there[name] = data

    monkeypatch.setattr(shell, "of_notebook", lambda: object())
    monkeypatch.setattr(show, "publish", publish)
    return there


def named(rank, content, name="h", **more):
    return Outcome(rank, displays=[content], names=[f"{name}{rank}"], **more)


def test_a_later_cell_updates_a_display_of_an_earlier_one(page):
    show.show([named(rank, text("0 %")) for rank in range(3)])
    assert [plain(data["text/plain"]) for data in page.values()] == ["ranks 0–2: 0 %"]
    show.show([Outcome(r, updates={f"h{r}": text("50 %"), "none": text("x")}) for r in range(3)])
    assert [plain(data["text/plain"]) for data in page.values()] == ["ranks 0–2: 50 %"]
    show.show([Outcome(1, updates={"h1": text("100 %")})])
    (data,) = page.values()
    assert plain(data["text/plain"]) == "ranks 0, 2: 50 %\nrank 1: 100 %"


def image(content):
    return {"data": {"image/png": content, "text/plain": "<Figure>"}, "metadata": {}}


def rich(content, kind="text/html"):
    return {"data": {kind: content, "text/plain": "<thing>"}, "metadata": {}}


def test_different_rich_outputs_stand_side_by_side_in_one(page, capsys):
    table = rich("<table>1</table>")
    displays = [table, image("AAAA"), table, text("a < b")]
    show.show([Outcome(rank, displays=[shown]) for rank, shown in enumerate(displays)])
    assert capsys.readouterr().out == ""
    (data,) = page.values()
    assert data["text/html"].startswith('<div style="display: flex; flex-wrap: wrap')
    columns = re.findall(r"<b[^>]*>(ranks? [^<]*)</b>:</div>(.*?)</div>", data["text/html"])
    assert [label for label, _ in columns] == ["ranks 0, 2", "rank 1", "rank 3"]
    assert columns[0][1] == "<table>1</table>"
    assert 'src="data:image/png;base64,AAAA"' in columns[1][1]
    assert columns[2][1] == "<pre>a &lt; b</pre>"
    assert plain(data["text/plain"]) == ("ranks 0, 2: <thing>\nrank 1: <Figure>\nrank 3: a < b")


def test_what_html_cannot_hold_stands_below_its_label_as_it_is(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(shell, "of_notebook", lambda: object())
    monkeypatch.setattr(show, "publish", lambda data, *_, **__: shown.append(data))
    widgets = [
        rich({"model_id": rank}, "application/vnd.jupyter.widget-view+json") for rank in "ab"
    ]
    show.show([Outcome(rank, displays=[widget]) for rank, widget in enumerate(widgets)])
    assert shown == [widget["data"] for widget in widgets]
    assert plain(capsys.readouterr().out) == "rank 0:\nrank 1:\n"


def test_displays_side_by_side_are_updated_in_their_place(page, capsys):
    show.show([named(rank, rich(f"<b>{rank}</b>")) for rank in range(2)])
    show.show([Outcome(rank, updates={f"h{rank}": rich("<b>9</b>")}) for rank in range(2)])
    assert capsys.readouterr().out == ""  # so the label is in it
    (data,) = page.values()
    assert "ranks 0–1</b>:</div><b>9</b></div>" in data["text/html"]


def test_pictures_that_are_no_longer_the_same_stand_side_by_side(page, capsys):
    show.show([named(rank, image("AAAA")) for rank in range(2)])
    assert plain(capsys.readouterr().out) == "ranks 0–1:\n"
    show.show([Outcome(r, updates={f"h{r}": image("BBBB")}) for r in range(2)])
    assert list(page.values()) == [image("BBBB")["data"]]
    show.show([Outcome(0, updates={"h0": image("CCCC")})])
    (data,) = page.values()
    assert re.findall(r"base64,(....)", data["text/html"]) == ["CCCC", "BBBB"]
    assert plain(data["text/plain"]) == "rank 0: <Figure>\nrank 1: <Figure>"


def test_outside_a_notebook_a_display_with_a_name_is_text(capsys):
    show.show([named(0, text("x"))])
    assert plain(capsys.readouterr().out) == "rank 0: x\n"


@pytest.mark.parametrize(
    ("ink", "background"), [("#212121", "#FFFFFF"), ("#FFFFFF", "#111111")], ids=["light", "dark"]
)
def test_labels_of_ranks_can_be_read_in_both_themes(ink, background):
    """With JupyterLab's ink for text; WCAG AA asks for 4.5."""
    for rank, colour in enumerate(RANK_COLOURS):
        (share,) = re.findall(rf"in srgb, {colour} (\d+)%, currentcolor", show.html_label([rank]))
        part = int(share) / 100
        mixed = part * np.array(to_rgb(colour)) + (1 - part) * np.array(to_rgb(ink))
        assert contrast(mixed, background) >= 4.5, colour
