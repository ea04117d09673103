"""Measure what docs/BENCHMARKS.md reports: ``python -m tests.bench``, or ``make bench``.

One module a claim. What is compared is measured alternately (A B A B …), because a shared machine
drifts, and the median is what counts. ``programs`` holds the programs that are measured.
"""
