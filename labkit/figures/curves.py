"""Draw what was measured against its model: cost of messages, scaling over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from .costs import bus_factor, fit_alpha_beta, measured
from .picture import Picture
from .style import (
    INK,
    LINE,
    MARKERS,
    NOTE_SIZE,
    SERIES,
    TITLE_SIZE,
    bytes_axis,
    format_bytes,
    format_seconds,
    ink_of,
    new_figure,
    seconds_axis,
    style_axes,
    style_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: One curve, or several by name.
Curves = Sequence[float] | Mapping[str, Sequence[float]]
#: Points, and lines through them.
POINTS: dict[str, Any] = {"linestyle": "", "markersize": 5, "markeredgewidth": 0, "zorder": 3,
                          "clip_on": False}  # fmt: skip
#: A bound or an ideal.
BOUND: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.2}


def bandwidth(
    sizes: Sequence[float],
    seconds: Curves,
    *,
    world_size: int,
    collective: str = "all_reduce",
    bound: float | None = None,
    title: str = "",
    how_to_read: str = "Points are measured, the line is t = α + β·n, fitted to them: small "
    "messages cost about α, the price of any call; beyond about α/β bytes the size counts.",
) -> Picture:
    """Draw time and bus bandwidth of a collective against the size of its message.

    Parameters
    ----------
    sizes
        Bytes of the whole tensor, at least two different ones.
    seconds
        Seconds for a call with each size; or such lists by name, to compare up to four.
    world_size
        Number of ranks that took part.
    collective
        What was measured, for the factor of its bus bandwidth (see
        :func:`~labkit.figures.bus_factor`).
    bound
        Bus bandwidth in bytes per second that the hardware cannot exceed. Without it, the dashed
        line is the limit of the fit, where a call costs nothing but β: measured points may lie
        above it.
    title
        By default, the collective and the number of ranks.

    Returns
    -------
    Picture
        Left, seconds per call against bytes, both axes logarithmic, with the line t = α + β·n
        fitted to each series; right, bus bandwidth in GB/s (1e9 bytes per second), with what the
        fit predicts and its limit. The text holds no measured number.

    Examples
    --------
    >>> sizes = [1 << 10, 1 << 17, 1 << 24]
    >>> picture = labkit.figures.bandwidth(sizes, [2e-4, 3e-4, 1.2e-2], world_size=4)
    >>> print(picture.text.partition(".")[0])
    all_reduce on 4 ranks: two panels against the size of the message, 1 KiB to 16 MiB
    """
    from matplotlib.lines import Line2D

    series = _series(sizes, seconds, "sizes", "seconds")
    factor = bus_factor(collective, world_size)
    if bound is not None and not bound > 0:
        raise UsageError(f"bound is {bound} bytes/s: give a bandwidth above zero")
    title = title or f"{collective} on {world_size} ranks"
    figure = new_figure(8.0, 3.6 + 0.2 * len(series))
    time, bus = figure.subplots(1, 2)
    figure.set_layout_engine("constrained", wspace=0.08)
    for axes in (time, bus):
        axes.set_xscale("log", base=2)
    time.set_yscale("log")
    handles, labels, limits = [], [], []
    for (name, (n, t)), colour, marker in zip(series.items(), SERIES, MARKERS, strict=False):
        fit = fit_alpha_beta(n.tolist(), t.tolist())
        grid = np.geomspace(n[0], n[-1], 200)
        line = fit.alpha + fit.beta * grid
        handles.append((
            *time.plot(n, t, marker=marker, color=colour, **POINTS),
            *time.plot(grid, line, color=colour, linewidth=1.4),
        ))  # fmt: skip
        label = f"α = {format_seconds(fit.alpha)}, 1/β = {_rate(fit.beta)}"
        labels.append(f"{name}: {label}" if name else label)
        bus.plot(n, factor * n / t / 1e9, marker=marker, color=colour, **POINTS)
        bus.plot(grid, factor * grid / line / 1e9, color=colour, linewidth=1.4)
        if bound is None and fit.beta > 0:
            limits.append((factor / fit.beta / 1e9, colour, "limit of the fit"))
    if bound is not None:
        limits = [(bound / 1e9, INK, "bound")]
    drawn = [float(np.max(line.get_ydata())) for line in bus.lines]
    bus.set_ylim(0, 1.18 * max(drawn + [height for height, _, _ in limits]))
    for height, colour, what in limits:
        bus.axhline(height, color=colour, **BOUND)
        # the limits of several lines may lie too close for words; their colours tell
        if len(limits) == 1:
            bus.annotate(f"{what} = {height:.3g} GB/s", (0.01, height), xytext=(0, 3),
                         xycoords=("axes fraction", "data"), textcoords="offset points",
                         color=ink_of(colour), fontsize=NOTE_SIZE)  # fmt: skip
    if len(limits) > 1:
        handles.append((Line2D([], [], color=INK, **BOUND),))
        labels.append("limit of a fit, where a call costs nothing but β")
    for axes in (time, bus):
        bytes_ticks(axes)
    _decades(time)
    seconds_axis(time.yaxis)
    style_axes(time, title="Time per call", xlabel="message (bytes)", ylabel="time (seconds)")
    style_axes(bus, title="Bus bandwidth", xlabel="message (bytes)", ylabel="bandwidth (GB/s)")
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=TITLE_SIZE, weight="bold")
    # below both panels: in one of them it would hide half of the points
    style_legend(time, handles, labels, loc="upper left", bbox_to_anchor=(-0.22, -0.18),
                 handlelength=1.6)  # fmt: skip
    names = f" of {', '.join(series)}" if "" not in series else ""
    some, most = (format_bytes(end) for end in next(iter(series.values()))[0][[0, -1]])
    text = (
        f"{title}: two panels against the size of the message, {some} to {most}. Left, time per "
        f"call in seconds{names}, measured and as the line t = α + β·n. Right, bus bandwidth in "
        f"GB/s, measured, by the line, and {'a bound' if bound else 'the limit of the fit'}."
    )
    return Picture(figure, text, how_to_read)


def scaling(
    ranks: Sequence[int],
    throughput: Curves,
    *,
    ideal: bool = True,
    unit: str = "images/s",
    title: str = "",
    how_to_read: str = "The dashed line is what perfect scaling from the first point would give; "
    "the percentage is the part of it that was reached.",
) -> Picture:
    """Draw throughput against the number of ranks, with how much of the ideal was reached.

    Parameters
    ----------
    ranks
        Numbers of ranks, each 1 or more.
    throughput
        What all ranks together did in a second on each number of ranks; or such lists by name,
        to compare up to four.
    ideal
        Whether to draw the line on which every rank is as fast as at the first point.
    unit
        Of the throughput.

    Returns
    -------
    Picture
        Points with their efficiency, throughput / (ranks · throughput a rank at the first point),
        in per cent. Axes are logarithmic if the numbers of ranks differ by more than eight times.
        The text holds no measured number.

    Examples
    --------
    >>> picture = labkit.figures.scaling([1, 2, 4], [1000, 1900, 3400])
    >>> print(picture.text.partition(", with")[0])
    Throughput in images/s against the number of ranks (1, 2, 4)
    """
    series = _series(ranks, throughput, "ranks", "throughput")
    numbers = np.unique(np.asarray(ranks, dtype=float))
    if len(numbers) < len(ranks):
        raise UsageError(
            "ranks has a number twice: give one throughput for each, such as the median"
        )
    figure = new_figure(6.0, 3.5)
    axes = figure.subplots()
    logarithmic = numbers[-1] > 8 * numbers[0]
    if logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    for (name, (n, rate)), colour, marker in zip(series.items(), SERIES, MARKERS, strict=False):
        each = rate[0] / n[0]
        if ideal:
            ends = np.array([n[0] if logarithmic or n[0] == n[-1] else 0, n[-1]])
            label = "ideal" if len(series) == 1 else None
            shade = LINE if len(series) == 1 else colour
            axes.plot(ends, each * ends, color=shade, label=label, **BOUND)
        axes.plot(n, rate, marker=marker, color=colour, label=name or "measured", zorder=3,
                  linewidth=1.4, markersize=6, markeredgewidth=0)  # fmt: skip
        # the first point is the measure of the others; several curves' would lie on each other
        first = 1 if len(series) > 1 else 0
        for x, y in zip(n[first:], rate[first:], strict=True):
            axes.annotate(f"{y / (each * x):.0%}", (x, y), xytext=(7, -4), va="top",
                          color=ink_of(colour), textcoords="offset points",
                          fontsize=NOTE_SIZE, zorder=4)  # fmt: skip
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if not logarithmic:
        axes.set_xlim(0, numbers[-1] * 1.12)
        axes.set_ylim(0, axes.get_ylim()[1])
    else:
        axes.set_xlim(numbers[0] / 1.2, numbers[-1] * 1.5)
        axes.set_ylim(axes.get_ylim()[0] / 1.5, axes.get_ylim()[1])
        _decades(axes)
    style_axes(axes, title=title, xlabel="ranks", ylabel=f"throughput ({unit})")
    style_legend(axes, loc="upper left")
    names = f" of {', '.join(series)}" if "" not in series else ""
    text = (
        f"{title + ': t' if title else 'T'}hroughput{names} in {unit} against the number of ranks "
        f"({', '.join(f'{number:g}' for number in numbers)}), with the efficiency in per cent at "
        f"each point{' and the ideal line' if ideal else ''}."
    )
    return Picture(figure, text, how_to_read)


def _series(
    x: Sequence[float], y: Curves, x_name: str, y_name: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the points of each curve by name; the name of an only curve is empty."""
    curves = y if isinstance(y, Mapping) else {"": y}
    if not 1 <= len(curves) <= len(SERIES):
        raise UsageError(f"{y_name} has {len(curves)} curves; a figure shows 1 to {len(SERIES)}")
    return {
        name: measured(x, values, x_name, f"{y_name}[{name!r}]" if name else y_name)
        for name, values in curves.items()
    }


def _rate(beta: float) -> str:
    return f"{1 / beta / 1e9:.3g} GB/s" if beta > 0 else "∞"


def bytes_ticks(axes: Axes) -> None:
    """Put at most six ticks at powers of two, with room for their units."""
    from matplotlib.ticker import FixedLocator

    low, high = np.log2(axes.get_xlim())
    step = next(s for s in (1, 2, 3, 5, 10, 20) if (high - low) / s < 6)
    # steps that meet at 2¹⁰, 2²⁰: 1 KiB and 1 MiB are read at a glance
    powers = np.arange(np.ceil(low / step) * step, high, step)
    axes.xaxis.set_major_locator(FixedLocator((2.0**powers).tolist()))
    axes.minorticks_off()
    bytes_axis(axes.xaxis)


def _decades(axes: Axes) -> None:
    """Put ticks on a log axis at powers of ten, and between them where those are too few."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = axes.get_ylim()
    if high < 5 * low:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    else:
        axes.yaxis.set_major_locator(LogLocator(10, (1.0, 2, 5) if high < 100 * low else (1.0,)))
    axes.minorticks_off()
