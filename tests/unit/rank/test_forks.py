"""A forked child leaves what its parent has left uncollected alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Two cycles are left: one before the fork, one after it in either process. Each tells when it is
#: collected.
SCRIPT = """
import gc, os
from labkit.rank import forks

class Cycle:
    def __init__(self, name):
        self.own, self.name = self, name
    def __del__(self):
        os.write(1, f"{who} collects {self.name}, ".encode())

who = "rank"
forks.install()
forks.install()
gc.collect()
gc.{before}()
Cycle("old")
child = os.fork()
if not child:
    who = "child"
    Cycle("new")
    gc.collect()
    os.write(1, f"enabled: {gc.isenabled()}, ".encode())
    os._exit(0)
os.waitpid(child, 0)
Cycle("new")
os.write(1, f"enabled: {gc.isenabled()}, ".encode())
gc.collect()
os._exit(0)
"""


@pytest.mark.parametrize(("before", "enabled"), [("enable", True), ("disable", False)])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_collects_only_what_it_made(before, enabled):
    script = SCRIPT.replace("{before}", before)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == (
        f"child collects new, enabled: {enabled}, "
        f"enabled: {enabled}, rank collects old, rank collects new, "
    )
