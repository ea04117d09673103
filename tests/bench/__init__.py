"""Measure what docs/BENCHMARKS.md reports: ``python -m tests.bench``, or ``make bench``.

``measurements`` has the claims. What is compared is measured alternately (A B A B …), because a
shared machine drifts, and the median is what counts. ``programs`` are measured.
"""
