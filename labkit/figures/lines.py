"""Draw costs as lines: of messages against their size, of work against the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import UsageError
from .chart import (
    BOUND,
    POINTS,
    Rounds,
    byte_range,
    bytes_ticks,
    chart,
    head,
    log_ticks,
    measured,
    number_ticks,
    plain_ticks,
    series,
    titled,
)
from .costs import AlphaBeta, fit_alpha_beta
from .picture import Picture
from .style import (
    CARD,
    INK,
    LINE,
    NOTE_SIZE,
    SERIES,
    TITLE_SIZE,
    ink_of,
    seconds_axis,
    style_axes,
    style_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

#: One curve, or several by name.
Curves = Sequence[float] | Mapping[str, Sequence[float]]
#: A number of ranks -> a value.
ByRanks = Mapping[int, float]
#: Least distance between two names at the ends of lines, in powers of the axis' base.
APART = 0.4


def bandwidth(
    sizes: Sequence[float], seconds: Curves, *, world_size: int, title: str = ""
) -> Picture:
    """Draw the bus bandwidth of an all-reduce against the size of its message.

    Bus bandwidth in GB/s (1e9 bytes per second) is 2(p − 1)/p · size / time, as nccl-tests has it,
    which compares with the hardware's whatever the number of ranks. The curve is that of the time
    t = α + β · bytes, fitted to each series, and the dashed line what it approaches. The text holds
    no measured number.

    Parameters
    ----------
    sizes
        Bytes of the whole tensor, at least two different ones.
    seconds
        Seconds for a call with each size; or such lists by name, to compare up to four.
    world_size
        Number of ranks that took part.
    title
        By default, the collective and the number of ranks.

    Examples
    --------
    >>> sizes = [1 << 10, 1 << 17, 1 << 24]
    >>> picture = labkit.figures.bandwidth(sizes, [2e-4, 3e-4, 1.2e-2], world_size=4)
    >>> print(picture.text.partition(", measured")[0])
    all_reduce on 4 ranks: bus bandwidth in GB/s against the size of the message, 1 KiB to 16 MiB
    """
    if world_size < 2:
        raise UsageError(f"bus bandwidth needs at least 2 ranks, not {world_size}")
    curves = _curves(sizes, seconds, "sizes", "seconds")
    factor = 2 * (world_size - 1) / world_size
    title = title or f"all_reduce on {world_size} ranks"
    figure, bus = chart(6.4, 3.4, x=2)
    from matplotlib.lines import Line2D

    handles, labels, limits = [], [], []
    for name, (n, t), colour, marker in series(curves):
        fit = fit_alpha_beta(n.tolist(), t.tolist())
        points = bus.plot(n, factor * n / t / 1e9, marker=marker, color=colour, **POINTS)
        curve = _draw_fit(bus, fit, n, colour, lambda size, t: factor * size / t / 1e9)
        handles.append((*points, curve))
        labels.append(f"{name}: {fit.describe()}" if name else fit.describe())
        if fit.beta > 0:
            limits.append((factor / fit.beta / 1e9, colour))
    drawn = [float(np.max(line.get_ydata())) for line in bus.lines]
    highest = max(drawn + [height for height, _ in limits])
    bus.set_ylim(0, (1.25 + 0.12 * len(curves)) * highest)  # room for the legend
    for height, colour in limits:
        bus.axhline(height, color=colour, **BOUND)
    if limits:
        handles.append((Line2D([], [], color=INK, **BOUND),))
        labels.append("limit of a fit, where a call costs nothing but β")
    bytes_ticks(bus, sizes)
    style_axes(bus, title=title, xlabel="message (bytes)", ylabel="bus bandwidth (GB/s)")
    style_legend(bus, handles, labels, loc="upper left", handlelength=1.6)
    text = (
        f"{title}: bus bandwidth in GB/s against the size of the message, {byte_range(sizes)}"
        f"{_names(curves)}, measured, by the line t = α + β · bytes, and the limit of that line."
    )
    return Picture(
        figure,
        text,
        "Points are measured. The curve is that of the time α + β · bytes, fitted to them: beyond "
        "about α/β bytes the size decides, and the bandwidth approaches its limit.",
    )


def message_cost(
    sizes: Sequence[float], rounds: Rounds, *, held_out: Sequence[float] = ()
) -> Picture:
    """Draw time and bandwidth of a message against its size, with the line t = α + β·n.

    Left, seconds against bytes; right, bytes per second; all axes are logarithmic. The text holds
    no measured number.

    Parameters
    ----------
    sizes
        Bytes of each message that was timed.
    rounds
        One list per round: the seconds that a message of each size took.
    held_out
        Which of the sizes the line is not fitted to. It is fitted to the medians of the others.

    Examples
    --------
    >>> sizes = [4, 1024, 2**20]
    >>> rounds = [[5e-5, 5e-5, 6e-4], [6e-5, 7e-5, 7e-4], [5e-5, 6e-5, 6e-4]]
    >>> picture = labkit.figures.message_cost(sizes, rounds, held_out=[1024])
    >>> print(picture.text.partition(":")[0])
    one message, 4 B to 1 MiB in 3 rounds
    """
    from matplotlib.ticker import EngFormatter

    n, t = _table(sizes, rounds)
    if unknown := sorted(set(held_out) - set(n.tolist())):
        raise UsageError(f"{unknown[0]:g} bytes are held out, but were not measured")
    out = np.isin(n, list(held_out))
    low, middle, high = np.quantile(t, (0.25, 0.5, 0.75), axis=0)
    fit = fit_alpha_beta(n[~out].tolist(), middle[~out].tolist())
    figure, (time, rate) = chart(8.0, 3.5, x=2, panels=2)
    time.set_yscale("log")
    rate.set_yscale("log")  # else the small sizes would all be 0
    handles = []
    for axes, ends in (
        (time, (low, middle, high)),
        (rate, [n / s for s in (high, middle, low)]),
    ):
        for chosen, face in ((~out, SERIES[0]), (out, CARD)):
            below, centre, above = (end[chosen] for end in ends)
            drawn = axes.errorbar(
                n[chosen], centre, [centre - below, above - centre], fmt="o", markersize=5,
                color=SERIES[0], markerfacecolor=face, elinewidth=1, zorder=3,
            )  # fmt: skip
            handles += [drawn] if axes is time and chosen.any() else []
    if fit.beta > 0:
        limit = 1 / fit.beta
        rate.axhline(limit, color=SERIES[1], **BOUND)
        rate.annotate("1/β", (0.01, limit), xytext=(0, 3), fontsize=NOTE_SIZE,
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      color=ink_of(SERIES[1]))  # fmt: skip
    _draw_fit(rate, fit, n, SERIES[1], np.divide)
    handles.append(_draw_fit(time, fit, n, SERIES[1], lambda size, t: t))
    labels = ["measured", "held out", fit.describe()]
    for axes in (time, rate):
        bytes_ticks(axes)
    seconds_axis(time.yaxis)
    time.minorticks_off()
    floor, top = time.get_ylim()
    time.set_ylim(floor, top * (top / floor) ** 0.35)  # room for the legend
    log_ticks(rate)
    rate.yaxis.set_major_formatter(EngFormatter("B/s"))
    style_axes(time, title="Time of one message", xlabel="size (bytes)", ylabel="time (seconds)")
    style_axes(rate, title="Bandwidth", xlabel="size (bytes)", ylabel="bytes per second")
    style_legend(time, handles, labels if out.any() else labels[::2], loc="upper left",
                 fontsize=NOTE_SIZE)  # fmt: skip
    head(figure, "A small message costs α; only a large one reaches the bandwidth", TITLE_SIZE)
    some = f", {int(out.sum())} of the sizes hollow" if out.any() else ""
    text = (
        f"one message, {byte_range(n.tolist())} in {len(t)} rounds: two panels against the "
        f"size{some}. Left, the time in seconds, measured and as the line t = α + β·n. Right, "
        "bytes per second, measured and by the same line, and its limit 1/β."
    )
    return Picture(
        figure,
        text,
        "A point is the median of all rounds; its bar holds the middle half of them. Hollow points "
        "were not used for the line.",
    )


def _draw_fit(
    axes: Axes,
    fit: AlphaBeta,
    n: np.ndarray,
    colour: str,
    height: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Line2D:
    """Draw ``height(bytes, seconds)`` along a fit; return the line."""
    grid = np.geomspace(n[0], n[-1], 200)
    (line,) = axes.plot(
        grid, height(grid, fit.alpha + fit.beta * grid), color=colour, linewidth=1.4
    )
    return line


def _table(sizes: Sequence[float], rounds: Rounds) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes in order, and the seconds as rows of rounds in the same order."""
    n = np.asarray(sizes, dtype=float).reshape(-1)
    if len(np.unique(n)) < len(n) or not (n > 0).all():
        raise UsageError("sizes has a size twice, or one that is not above zero")
    if not len(rounds) or any(len(row) != len(n) for row in rounds):
        raise UsageError(f"rounds needs rows of {len(n)} times, one for each size")
    t = np.asarray(rounds, dtype=float)
    if not (np.isfinite(t).all() and (t > 0).all()):
        raise UsageError("rounds has times that are not above zero")
    order = np.argsort(n)
    return n[order], t[:, order]


def scaling(ranks: Sequence[int], throughput: Curves, *, title: str = "") -> Picture:
    """Draw throughput against the number of ranks, with how much of the ideal was reached.

    Points have their efficiency, throughput / (ranks · throughput per rank at the first point), in
    per cent. Axes are logarithmic if the numbers of ranks differ by more than eight times. The text
    holds no measured number.

    Parameters
    ----------
    ranks
        Numbers of ranks, each 1 or more.
    throughput
        Images that all ranks together did in a second on each number of ranks; or such lists by
        name, to compare up to four.

    Examples
    --------
    >>> picture = labkit.figures.scaling([1, 2, 4], [1000, 1900, 3400])
    >>> print(picture.text.partition(", with")[0])
    Throughput in images/s against the number of ranks (1, 2, 4)
    """
    curves = _curves(ranks, throughput, "ranks", "throughput")
    numbers = np.unique(np.asarray(ranks, dtype=float))
    if len(numbers) < len(ranks):
        raise UsageError(
            "ranks has a number twice: give one throughput for each, such as the median"
        )
    logarithmic = numbers[-1] > 8 * numbers[0]
    figure, axes = chart(6.0, 3.5, x=2 * logarithmic, y=10 * logarithmic)
    for name, (n, rate), colour, marker in series(curves):
        each = rate[0] / n[0]
        ends = np.array([n[0] if logarithmic or n[0] == n[-1] else 0, n[-1]])
        alone = len(curves) == 1
        axes.plot(ends, each * ends, color=LINE if alone else colour,
                  label="ideal" if alone else None, **BOUND)  # fmt: skip
        axes.plot(n, rate, marker=marker, color=colour, label=name or "measured", zorder=3,
                  linewidth=1.4, markersize=6, markeredgewidth=0)  # fmt: skip
        # the first point is the measure of the others; several curves' would lie on each other
        first = 0 if alone else 1
        for x, y in zip(n[first:], rate[first:], strict=True):
            axes.annotate(f"{y / (each * x):.0%}", (x, y), xytext=(7, -4), va="top",
                          color=ink_of(colour), textcoords="offset points",
                          fontsize=NOTE_SIZE, zorder=4)  # fmt: skip
    number_ticks(axes, numbers.tolist())
    plain_ticks(axes)
    if not logarithmic:
        axes.set_xlim(0, numbers[-1] * 1.12)
        axes.set_ylim(0, axes.get_ylim()[1])
    else:
        axes.set_xlim(numbers[0] / 1.2, numbers[-1] * 1.5)
        axes.set_ylim(axes.get_ylim()[0] / 1.5, axes.get_ylim()[1])
        log_ticks(axes)
    style_axes(axes, title=title, xlabel="ranks", ylabel="throughput (images/s)")
    style_legend(axes, loc="upper left")
    text = titled(
        title,
        f"Throughput{_names(curves)} in images/s against the number of ranks "
        f"({', '.join(f'{number:g}' for number in numbers)}), with the efficiency in per cent at "
        "each point and the ideal line.",
    )
    return Picture(
        figure,
        text,
        "The dashed line is what perfect scaling from the first point would give; the percentage "
        "is the part of it that was reached.",
    )


def by_ranks(
    lines: Mapping[str, ByRanks],
    points: Mapping[str, ByRanks] | None = None,
    *,
    title: str = "",
    ylabel: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw how costs grow with the number of ranks, on logarithmic axes.

    Parameters
    ----------
    lines
        By name, up to four: what a formula gives for some numbers of ranks. Values that are not
        above zero are left out, and so is a line of which nothing is left. The text holds the
        values at the ends.
    points
        By the same names: what was counted.

    Examples
    --------
    >>> lines = {"server": {2: 2, 4: 6, 64: 126}, "ring": {2: 1, 4: 1.5, 64: 1.97}}
    >>> picture = labkit.figures.by_ranks(lines, {"ring": {4: 1.5}}, title="Tensors sent")
    >>> print(picture.text.splitlines()[0])
    Tensors sent, against the number of ranks: server 2 at 2 ranks, 126 at 64; ring 1 at 2 ranks, \
1.97 at 64. Counted points: ring at 4.
    """
    points = points or {}
    if strange := [name for name in points if name not in lines]:
        raise UsageError(f"points names {strange[0]!r}, which is no line")
    figure, axes = chart(6.4, 3.4, x=2, y=2)
    ends, told, ticks = [], [], set()
    for name, values, colour, marker in series(lines, "lines"):
        drawn = {n: value for n, value in sorted(values.items()) if value > 0}
        counted = {n: value for n, value in points.get(name, {}).items() if value > 0}
        ticks |= {*drawn, *counted}
        if drawn:
            axes.plot([*drawn], [*drawn.values()], color=colour, linewidth=1.4)
            first, last = min(drawn), max(drawn)
            ends.append((np.log2(drawn[last]), last, name, colour))
            told.append(f"{name} {drawn[first]:.3g} at {first} ranks, {drawn[last]:.3g} at {last}")
        axes.plot([*counted], [*counted.values()], marker, color=colour, zorder=3)
    lowest = -np.inf
    for height, last, name, colour in sorted(ends):
        lowest = max(height, lowest + APART)  # names of lines that meet stand above each other
        axes.annotate(name, (last, 2.0**lowest), xytext=(6, 0), textcoords="offset points",
                      va="center", color=ink_of(colour), fontsize=NOTE_SIZE)  # fmt: skip
    style_axes(axes, title=title, xlabel="ranks", ylabel=ylabel)
    number_ticks(axes, sorted(n for n in ticks if n & (n - 1) == 0), "d")
    plain_ticks(axes)
    dots = [
        f"{name} at {', '.join(str(n) for n in sorted(own))}" for name, own in points.items() if own
    ]
    text = (
        f"{title + ', against' if title else 'Against'} the number of ranks: "
        f"{'; '.join(told) or 'nothing'}."
        f"{' Counted points: ' + '; '.join(dots) + '.' if dots else ''}"
    )
    return Picture(figure, text, how_to_read)


def _curves(
    x: Sequence[float], y: Curves, x_name: str, y_name: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the points of each curve by name; the name of an only curve is empty."""
    curves = y if isinstance(y, Mapping) else {"": y}
    if not curves:
        raise UsageError(f"{y_name} has no curves")
    return {
        name: measured(x, values, x_name, f"{y_name}[{name!r}]" if name else y_name)
        for name, values in curves.items()
    }


def _names(curves: Mapping[str, object]) -> str:
    return f" of {', '.join(curves)}" if "" not in curves else ""
