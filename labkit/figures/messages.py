"""Draw what messages cost: many rounds of measurements, a line, and how well it predicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UsageError
from .costs import fit_alpha_beta
from .picture import Picture
from .style import (
    CARD,
    NOTE_SIZE,
    SERIES,
    bytes_axis,
    format_bytes,
    format_seconds,
    new_figure,
    seconds_axis,
    style_axes,
    style_legend,
)

#: Quarters of the rounds between which half of them lie.
QUARTILES = (0.25, 0.5, 0.75)


def message_cost(
    sizes: Sequence[float],
    rounds: Sequence[Sequence[float]],
    *,
    held_out: Sequence[float] = (),
    title: str = "one message",
    how_to_read: str = "A point is the median of all rounds; its bar holds the middle half of "
    "them. Hollow points were not used for the line.",
) -> Picture:
    """Draw time and bandwidth of a message against its size, with the line t = α + β·n.

    Parameters
    ----------
    sizes
        Bytes of each message that was timed.
    rounds
        One list per round: the seconds that a message of each size took.
    held_out
        Which of the sizes the line is not fitted to. It is fitted to the medians of the others.
    title
        What was measured.

    Returns
    -------
    Picture
        Left, seconds against bytes, both axes logarithmic; right, bytes per second. The text
        holds no measured number.

    Raises
    ------
    UsageError
        If a round has not one time above zero for each size, a size is twice there, an unknown
        one is held out, or fewer than two are left.

    Examples
    --------
    >>> sizes = [4, 1024, 2**20]
    >>> rounds = [[5e-5, 5e-5, 6e-4], [6e-5, 7e-5, 7e-4], [5e-5, 6e-5, 6e-4]]
    >>> picture = labkit.figures.message_cost(sizes, rounds, held_out=[1024])
    >>> print(picture.text.partition(":")[0])
    one message, 4 B to 1 MiB in 3 rounds
    """
    n, t = _table(sizes, rounds)
    if unknown := sorted(set(held_out) - set(n.tolist())):
        raise UsageError(f"{unknown[0]:g} bytes are held out, but were not measured")
    out = np.isin(n, list(held_out))
    low, middle, high = np.quantile(t, QUARTILES, axis=0)
    fit = fit_alpha_beta(n[~out].tolist(), middle[~out].tolist())
    grid = np.geomspace(n[0], n[-1], 200)
    line = fit.alpha + fit.beta * grid
    figure = new_figure(8.0, 3.5)
    time, rate = figure.subplots(1, 2)
    figure.set_layout_engine("constrained", wspace=0.08)
    for axes in (time, rate):
        axes.set_xscale("log", base=2)
        axes.set_xticks(_ticks(n[0], n[-1]))
        axes.minorticks_off()
        bytes_axis(axes.xaxis)
    time.set_yscale("log")
    handles = []
    for chosen, face in ((~out, SERIES[0]), (out, CARD)):
        for axes, centre, ends in (
            (time, middle, (middle - low, high - middle)),
            (rate, n / middle / 1e9, (n / middle / 1e9 - n / high / 1e9,
                                      n / low / 1e9 - n / middle / 1e9)),
        ):  # fmt: skip
            drawn = axes.errorbar(
                n[chosen], centre[chosen], [end[chosen] for end in ends], fmt="o", markersize=5,
                color=SERIES[0], markerfacecolor=face, elinewidth=1, zorder=3,
            )  # fmt: skip
            handles += [drawn] if axes is time and chosen.any() else []
    handles += time.plot(grid, line, color=SERIES[1], linewidth=1.4)
    rate.plot(grid, grid / line / 1e9, color=SERIES[1], linewidth=1.4)
    labels = ["measured", "held out", f"α = {format_seconds(fit.alpha)}, 1/β = {_rate(fit.beta)}"]
    seconds_axis(time.yaxis)
    time.minorticks_off()
    floor, top = time.get_ylim()
    time.set_ylim(floor, top * (top / floor) ** 0.35)  # room for the legend
    rate.set_ylim(0)
    style_axes(time, title=f"Time of {title}", xlabel="size (bytes)", ylabel="time (seconds)")
    style_axes(rate, title="Bandwidth", xlabel="size (bytes)",
               ylabel="bytes per second (GB/s)")  # fmt: skip
    style_legend(time, handles, labels if out.any() else labels[::2], loc="upper left",
                 fontsize=NOTE_SIZE)  # fmt: skip
    some = f", {int(out.sum())} of the sizes hollow" if out.any() else ""
    text = (
        f"{title}, {format_bytes(n[0])} to {format_bytes(n[-1])} in {len(t)} rounds: two panels "
        f"against the size{some}. Left, the time in seconds, measured and as the line "
        "t = α + β·n. Right, bytes per second, measured and by the same line."
    )
    return Picture(figure, text, how_to_read)


def _table(
    sizes: Sequence[float], rounds: Sequence[Sequence[float]]
) -> tuple[np.ndarray, np.ndarray]:
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


def _ticks(first: float, last: float) -> list[float]:
    """Return at most six powers of two, among them 1 KiB and 1 MiB where they are in sight."""
    low, high = np.log2(first), np.log2(last)
    step = next(step for step in (1, 2, 5, 10, 20) if (high - low) / step < 6)
    return [float(2.0**power) for power in np.arange(np.ceil(low / step) * step, high + 1e-9, step)]


def _rate(beta: float) -> str:
    return f"{1 / beta / 1e9:.3g} GB/s" if beta > 0 else "∞"
