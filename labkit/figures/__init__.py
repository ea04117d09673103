"""Draw what ranks really did, in one house style.

Every figure is a :class:`Picture`: an image for the eye, and the same facts as text, for screen
readers and for nbval, which compares text and not pixels.

>>> picture = labkit.figures.before_after([[1], [2]], [[3], [3]], "dist.all_reduce(x)")
>>> picture.text.splitlines()[:3]
['dist.all_reduce(x)', 'rank 0: [1] → [3]', 'rank 1: [2] → [3]']
"""

from ..rank_names import rank_colour
from .answers import answers
from .bars import memory
from .bill import lost_time, step_times
from .by_ranks import by_ranks
from .checkpoints import killed_writers, resumed_without, written_by
from .costs import AlphaBeta, bus_bandwidth, bus_factor, fit_alpha_beta
from .curves import bandwidth, scaling
from .expected_bars import expected_bars
from .kernel_and_ranks import processes
from .lanes import lanes
from .messages import message_cost
from .over_a_step import over_a_step
from .picture import Picture
from .pipelines import bubble, idle, pipelines
from .precision import gradient_sizes, losses_and_pictures, scale_history, time_and_memory
from .ring import ring_strip
from .rounds import against_prediction, paired_ratios
from .store_and_ranks import rendezvous
from .style import ink_of, new_figure, style_axes, text_on
from .tensors import before_after

__all__ = [
    "AlphaBeta",
    "Picture",
    "against_prediction",
    "answers",
    "bandwidth",
    "before_after",
    "bubble",
    "bus_bandwidth",
    "bus_factor",
    "by_ranks",
    "expected_bars",
    "fit_alpha_beta",
    "gradient_sizes",
    "idle",
    "ink_of",
    "killed_writers",
    "lanes",
    "losses_and_pictures",
    "lost_time",
    "memory",
    "message_cost",
    "new_figure",
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
    "text_on",
    "time_and_memory",
    "written_by",
]
