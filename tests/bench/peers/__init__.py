"""Measure labkit beside other ways to run ranks: ``python -m tests.bench.peers``.

``make bench-peers`` does the same. ``peer`` says what is compared, ``programs`` has one program per
peer, ``install`` gives each that is not in our lock an environment of its own, ``measure`` asks the
programs, ``bounds`` judges labkit, and ``table`` and ``figure`` show what was found.
"""
