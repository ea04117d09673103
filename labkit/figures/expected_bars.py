"""Draw what was expected of several ways to do one thing, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import UsageError
from .picture import Picture
from .style import SERIES, format_seconds, new_figure, seconds_unit, style_axes, style_legend


def expected_bars(
    expected: Mapping[str, float],
    measured: Mapping[str, float] | None = None,
    *,
    title: str = "",
    how_to_read: str = "Dashed: predicted. Diamond: measured, where that was possible.",
) -> Picture:
    """Draw predicted seconds as dashed bars, and measured ones as diamonds on them.

    Parameters
    ----------
    expected
        By name: the predicted seconds, above zero.
    measured
        By the same names: the measured seconds; a name may be missing.

    Returns
    -------
    Picture
        One bar per name, in the order of ``expected``, from the top. The text holds the
        predictions and no measured number.

    Raises
    ------
    UsageError
        If there is no prediction, one is not above zero, or ``measured`` has another name.

    Examples
    --------
    >>> picture = labkit.figures.expected_bars({"ring": 0.5, "two levels": 0.34}, {"ring": 0.46})
    >>> print(picture.text.splitlines()[0])
    Predicted: ring 500 ms, two levels 340 ms.
    """
    measured = measured or {}
    if not expected or not all(seconds > 0 for seconds in expected.values()):
        raise UsageError("expected needs at least one name, and seconds above zero")
    if strange := [name for name in measured if name not in expected]:
        raise UsageError(f"measured names {strange[0]!r}, which is not among the expected ones")
    unit, name_of_unit = seconds_unit(max([*expected.values(), *measured.values()]))
    figure = new_figure(7.0, 0.9 + 0.5 * len(expected))
    axes = figure.subplots()
    rows = np.arange(len(expected))
    axes.barh(rows, [seconds / unit for seconds in expected.values()], 0.5, facecolor="none",
              edgecolor=SERIES[0], linestyle="--", linewidth=1.4, label="predicted")  # fmt: skip
    points = [(row, measured[name] / unit) for row, name in enumerate(expected) if name in measured]
    if points:
        at, seconds = zip(*points, strict=True)
        axes.plot(seconds, at, "D", color=SERIES[1], linestyle="", zorder=3, label="measured")
    axes.set_yticks(rows, list(expected))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    style_axes(axes, title=title, xlabel=f"time ({name_of_unit})", grid="x")
    style_legend(axes, loc="best")
    told = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in expected.items())
    return Picture(figure, f"{title + ': p' if title else 'P'}redicted: {told}.", how_to_read)
