"""The house style: what every figure of the course has in common."""

from __future__ import annotations

#: Text, axes and everything that belongs to no rank.
INK = "#333333"
#: Values that no single rank held before: sums, maxima, products.
COMBINED = "#646464"
DPI = 130
