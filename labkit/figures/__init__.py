"""Draw what ranks really did, in one house style.

Every figure is a :class:`Picture`: an image for the eye, and the same facts as text, for screen
readers and for nbval, which compares text and not pixels. What does not fit a figure raises
``UsageError``, which says what would.

>>> picture = labkit.figures.before_after([[1], [2]], [[3], [3]], "dist.all_reduce(x)")
>>> picture.text.splitlines()[:3]
['dist.all_reduce(x)', 'rank 0: [1] → [3]', 'rank 1: [2] → [3]']
"""

from ..base.rank_names import rank_colour
from .atlas import atlas, exchange
from .bars import expected_bars, memory, over_a_step
from .costs import AlphaBeta, fit_alpha_beta
from .drawings import answers, nodes, processes, rendezvous
from .gallery import Gallery
from .lanes import bubble, idle, lanes, pipelines
from .lessons import (
    gradient_sizes,
    killed_writers,
    losses_and_pictures,
    lost_time,
    resumed_without,
    scale_history,
    written_by,
)
from .lines import bandwidth, by_ranks, message_cost, scaling
from .message_rounds import count_rounds, message_rounds
from .picture import Picture
from .progress import class_progress
from .ring import ring_strip
from .rounds import against_prediction, paired_ratios, step_times, time_and_memory
from .style import new_figure, style_axes
from .tensors import before_after

__all__ = [
    "AlphaBeta",
    "Gallery",
    "Picture",
    "against_prediction",
    "answers",
    "atlas",
    "bandwidth",
    "before_after",
    "bubble",
    "by_ranks",
    "class_progress",
    "count_rounds",
    "exchange",
    "expected_bars",
    "fit_alpha_beta",
    "gradient_sizes",
    "idle",
    "killed_writers",
    "lanes",
    "losses_and_pictures",
    "lost_time",
    "memory",
    "message_cost",
    "message_rounds",
    "new_figure",
    "nodes",
    "over_a_step",
    "paired_ratios",
    "pipelines",
    "processes",
    "rank_colour",
    "rendezvous",
    "resumed_without",
    "ring_strip",
    "scale_history",
    "scaling",
    "step_times",
    "style_axes",
    "time_and_memory",
    "written_by",
]
