"""Import all that runs on a rank: once, in the warm process, so that every fork has it.

The package itself imports nothing, so that one module of it can be had alone.
"""

from . import (
    calls,
    control,
    debugger_internals,
    device,
    errands,
    gpus,
    ipython_internals,
    last_receives,
    memory,
    own_names,
    person,
    process_group,
    setup,
    tracebacks,
    unblock,
)
from .observe import blocked_call, cpu_clock, flight_recorder, p2p_record, sampler
from .profile import classify, clocks, marks, profiler
from .torch_internals import (
    backend_plugins,
    default_arguments,
    frames,
    groups,
    meshes,
    names,
    profiling,
    recorder,
    rendezvous,
    reprs,
    threads,
)
from .trial import call_counter, trial

# Look at all names once here, not on every rank.
backend_plugins.installed()
debugger_internals.check()
ipython_internals.check()
names.check()

__all__ = [
    "backend_plugins",
    "blocked_call",
    "call_counter",
    "calls",
    "classify",
    "clocks",
    "control",
    "cpu_clock",
    "debugger_internals",
    "default_arguments",
    "device",
    "errands",
    "flight_recorder",
    "frames",
    "gpus",
    "groups",
    "ipython_internals",
    "last_receives",
    "marks",
    "memory",
    "meshes",
    "names",
    "own_names",
    "p2p_record",
    "person",
    "process_group",
    "profiler",
    "profiling",
    "recorder",
    "rendezvous",
    "reprs",
    "sampler",
    "setup",
    "threads",
    "tracebacks",
    "trial",
    "unblock",
]
