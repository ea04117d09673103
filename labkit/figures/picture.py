"""A finished figure: an image for the eye, and the same facts as text."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import DataError, UsageError
from ..base.files import reason, write_whole
from .style import CARD, CARD_EDGE, DPI, NOTE_SIZE, SHOWN_DPI, SOFT_INK

if TYPE_CHECKING:
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox, Transform

#: White around everything that is drawn, between figure and reading help, and the card's corners,
#: in inches.
MARGIN = 0.16
GAP = 0.12
CORNER = 0.08
#: Different colours, most from smooth edges, that a drawing may have; a photograph has more.
FLAT = 16_384
#: Reading help under a narrow figure may be wider than the figure, up to this many inches.
NARROWEST_NOTE = 3.6


class Picture:
    """Finish a figure: set it on a card, with reading help, and keep a text that says the same.

    Parameters
    ----------
    figure
        What to draw; it is rendered now and left as it was, and once more by ``save("x.svg")``.
    text
        The figure in words: alt text, and the text that nbval compares. So put nothing in it that
        varies from run to run.
    how_to_read
        One sentence that says how to read the figure; drawn under it, and the end of the text.
    film
        An SVG that plays what the figure shows standing still, "" for none. A front end that shows
        no SVG, as JupyterLab does in a notebook that it does not trust, shows the figure.

    Attributes
    ----------
    png
        The image, as bytes.
    text
        Text and reading help.
    width
        How wide the image is shown, in CSS pixels; it has twice as many.

    Examples
    --------
    >>> figure = labkit.figures.new_figure()
    >>> axes = figure.add_subplot()
    >>> bars = axes.bar(["rank 0", "rank 1"], [3, 4])
    >>> labkit.figures.style_axes(axes, ylabel="batches", grid="y")
    >>> picture = labkit.figures.Picture(
    ...     figure, "Rank 0 did 3 batches, rank 1 did 4.", "A bar is one rank."
    ... )
    >>> print(picture.text)
    Rank 0 did 3 batches, rank 1 did 4.
    A bar is one rank.
    """

    def __init__(self, figure: Figure, text: str, how_to_read: str = "", *, film: str = "") -> None:
        self.png, self.width = _render(figure, how_to_read)
        self.text = f"{text}\n{how_to_read}" if how_to_read else text
        self._figure, self._note, self._film = figure, how_to_read, film

    def save(self, path: str | Path) -> None:
        """Write the image as a file, whole or not at all; its folder is made if there is none.

        Parameters
        ----------
        path
            A name that ends in ``.png`` (the image that the notebook shows) or in ``.svg`` (lines
            and letters that are sharp at any size, with the text for screen readers). An older
            file is replaced.

        Raises
        ------
        UsageError
            If it has another ending.
        DataError
            If it cannot be written.

        Examples
        --------
        >>> picture = labkit.figures.scale_history([8.0, 4.0, 4.0])
        >>> picture.save("scale.svg")  # doctest: +SKIP
        """
        ending = Path(path).suffix
        if ending not in (".png", ".svg"):
            raise UsageError(f"A figure is saved as .png or .svg, not as {Path(path).name!r}.")
        write(path, self.png if ending == ".png" else self._svg())

    def _svg(self) -> bytes:
        """Return the figure as an SVG, the same bytes each time."""
        from matplotlib import rc_context

        with rc_context({"svg.hashsalt": "labkit"}):
            image = _page(self._figure, self._note, "svg", {"Date": None, "Creator": None})[0]
        told = f'<svg role="img" aria-label="{escape(self.text)}" '
        return image.getvalue().replace(b"<svg ", told.encode(), 1)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        data: dict[str, Any] = {"image/png": self.png, "text/plain": self.text}
        told: dict[str, Any] = {"image/png": {"alt": self.text, "width": self.width}}
        if self._film:
            data["image/svg+xml"], told["image/svg+xml"] = self._film, {"alt": self.text}
        return data, told


def write(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    DataError
        If it cannot be written; what was there before is there still.
    """
    path = Path(path).expanduser()
    try:
        write_whole(path, content)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {reason(error)}.") from None


def _render(figure: Figure, note: str) -> tuple[bytes, int]:
    """Return the figure on its card as a PNG, and the width to show it at in CSS pixels."""
    # the program's version would change the file with every update of matplotlib
    image, width = _page(figure, note, "png", {"Software": None})
    return _small(image), width


def _page(
    figure: Figure, note: str, form: str, metadata: dict[str, None]
) -> tuple[io.BytesIO, int]:
    """Draw the figure on its card, and its reading help; return the file, and its width."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patches import FancyBboxPatch
    from matplotlib.transforms import Affine2D, Bbox

    figure.set_dpi(DPI)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    # what is measured now is what is saved
    layout = figure.get_layout_engine()
    figure.set_layout_engine("none")
    content = figure.get_tightbbox(renderer)
    # not dpi_scale_trans: a figure that is saved in part shifts transFigure alone
    shrink = Affine2D().scale(1 / figure.get_figwidth(), 1 / figure.get_figheight())
    inches = shrink + figure.transFigure
    added = [_note(figure, renderer, note, content, inches)] if note else []
    if added:
        extent = added[0].get_window_extent(renderer)
        content = Bbox.union([content, extent.transformed(inches.inverted())])
    page = content.padded(MARGIN)
    # half a line inside the page, or the edge would be cut along its middle
    line = 0.8 / 72
    card = page.padded(-line / 2)
    patch = FancyBboxPatch(
        (card.x0 + CORNER, card.y0 + CORNER),
        card.width - 2 * CORNER,
        card.height - 2 * CORNER,
        boxstyle=f"round,pad={CORNER},rounding_size={CORNER}",
        transform=inches,
        facecolor=CARD,
        edgecolor=CARD_EDGE,
        linewidth=0.8,
        zorder=-100,
    )
    figure.add_artist(patch)
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=form,
        dpi=DPI,
        bbox_inches=page,
        pad_inches=0,
        facecolor="none",
        metadata=metadata,
    )
    for artist in [patch, *added]:
        artist.remove()
    figure.set_layout_engine(layout)
    return buffer, round(page.width * SHOWN_DPI)


def _small(buffer: io.BytesIO) -> bytes:
    """Return a PNG with a palette, a quarter of the size, if it holds flat colours and no image."""
    from PIL import Image

    image = Image.open(buffer)
    if image.getcolors(FLAT) is None:
        return buffer.getvalue()
    small = io.BytesIO()
    palette = image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette.save(small, "PNG", optimize=True)
    return small.getvalue()


def _note(
    figure: Figure, renderer: RendererBase, note: str, content: Bbox, inches: Transform
) -> Text:
    """Write reading help under what a figure shows, wrapped to its width."""
    text = figure.text(
        content.x0,
        content.y0 - GAP,
        "",
        transform=inches,
        ha="left",
        va="top",
        fontsize=NOTE_SIZE,
        color=SOFT_INK,
        linespacing=1.3,
    )
    widest = max(content.width, NARROWEST_NOTE) * figure.dpi
    lines = [""]
    for word in note.split():
        longer = f"{lines[-1]} {word}".lstrip()
        text.set_text(longer)
        if text.get_window_extent(renderer).width <= widest:
            lines[-1] = longer
        else:
            lines.append(word)
    text.set_text("\n".join(line for line in lines if line))
    return text
