"""The programs that the benchmarks run, each in fresh processes of its own.

Every one writes its answer on a line that starts with ``BENCH`` (see ``tests.bench.child``).
"""
