"""Draw what ranks really did, in one house style.

Every figure is a :class:`Picture`: an image for the eye, and the same facts as text, for screen
readers and for nbval, which compares text and not pixels.
"""

from ..colours import rank_colour
from .picture import Picture
from .tensors import before_after

__all__ = ["Picture", "before_after", "rank_colour"]
