"""Draw what a rank holds at the moments of a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UsageError
from .picture import Picture
from .style import SERIES, bytes_unit, format_bytes, new_figure, style_axes, style_legend


def over_a_step(
    held: Mapping[str, Sequence[float]],
    moments: Sequence[str],
    *,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw the bytes that are held at each moment of a step, one line per way to train.

    Parameters
    ----------
    held
        By name, up to four: the bytes at each moment.
    moments
        What happens then, such as ``"forward 0"``.

    Returns
    -------
    Picture
        One stepped line per name. The text holds each line's peak and when it is reached first.

    Raises
    ------
    UsageError
        If there are no lines or more than four, or one has not one number per moment.

    Examples
    --------
    >>> held = {"whole": [1024, 4096, 4096], "sharded": [1024, 2048, 1024]}
    >>> picture = labkit.figures.over_a_step(held, ["start", "forward", "end"], title="Parameters")
    >>> print(picture.text)
    Parameters over a step, at 3 moments from start to end.
    whole: at most 4 KiB, first at forward
    sharded: at most 2 KiB, first at forward
    Each line is what one rank holds; its highest point is the memory that is needed.
    """
    if not 1 <= len(held) <= len(SERIES):
        raise UsageError(f"there are {len(held)} lines; a figure shows 1 to {len(SERIES)}")
    for name, line in held.items():
        if len(line) != len(moments):
            raise UsageError(f"{name} has {len(line)} numbers for {len(moments)} moments")
    peaks = {name: max(line) for name, line in held.items()}
    unit, unit_name = bytes_unit(float(max(peaks.values())))
    figure = new_figure(7.2, 3.2)
    axes = figure.subplots()
    places = range(len(moments))
    for (name, line), colour in zip(held.items(), SERIES, strict=False):
        sizes = [size / unit for size in line]
        axes.plot(places, sizes, drawstyle="steps-mid", color=colour, linewidth=2, label=name)
        axes.plot(places, sizes, "o", color=colour, markersize=4)
    axes.set_ylim(0, max(peaks.values()) / unit * 1.15 or 1.0)
    axes.set_xticks(places, [moment.replace(" ", "\n") for moment in moments])
    style_axes(axes, title=title, ylabel=f"held ({unit_name})", grid="y")
    style_legend(axes, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    what = f"{title} over a step" if title else "A step"
    lines = [f"{what}, at {len(moments)} moments from {moments[0]} to {moments[-1]}."]
    for name, line in held.items():
        first = moments[list(line).index(peaks[name])]
        lines.append(f"{name}: at most {format_bytes(peaks[name])}, first at {first}")
    note = how_to_read or (
        "Each line is what one rank holds; its highest point is the memory that is needed."
    )
    return Picture(figure, "\n".join(lines), note)
