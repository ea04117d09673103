"""What ranks display, as HTML."""

from __future__ import annotations

import pytest

from labkit.notebook import rich_html

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def bundle(metadata=None, **data):
    return {"data": {kind.replace("_", "/"): text for kind, text in data.items()},
            "metadata": metadata or {}}  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "fits"),
    [
        (["text/plain"], True),
        (["text/html", "text/plain"], True),
        (["image/png", "text/plain"], True),
        (["text/markdown", "text/plain"], False),
        (["text/latex", "image/png", "text/plain"], False),
        (["application/vnd.jupyter.widget-view+json", "text/plain"], False),
        (["application/vnd.plotly.v1+json", "text/html"], False),
    ],
)
def test_only_static_outputs_fit(kinds, fits):
    assert rich_html.fits({"data": dict.fromkeys(kinds, "x"), "metadata": {}}) == fits


def test_the_form_that_a_front_end_would_show_is_taken():
    assert rich_html.html(bundle(text_plain="<p>", text_html="<p>x", image_png="AA")) == "<p>x"
    assert "base64,AA" in rich_html.html(bundle(text_plain="<Figure>", image_png="A\nA\n"))
    assert rich_html.html(bundle(text_plain="a < b")) == "<pre>a &lt; b</pre>"


def test_an_svg_becomes_a_picture_whose_script_does_not_run():
    html = rich_html.html({"data": {"image/svg+xml": SVG}, "metadata": {}})
    assert html.startswith('<img alt="" ')
    assert "<script" not in html


def test_a_picture_keeps_its_alt_text_and_width():
    html = rich_html.image(bundle({"image/png": {"alt": 'a "b"', "width": 40}}, image_png="AA"))
    assert 'alt="a &quot;b&quot;"' in html
    assert 'width="40"' in html
    assert 'alt="&lt;Figure&gt;"' in rich_html.image(bundle(image_png="AA", text_plain="<Figure>"))
