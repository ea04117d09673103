"""How a process ended, in words."""

import signal

import pytest

from labkit.wire.state import describe_exit


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "signal 9 (SIGKILL)"),
        (-99, "signal 99 (unknown)"),
        (0, "exit code 0"),
        (3, "exit code 3"),
        (None, "its host, or with the connection to it"),
    ],
)
def test_it_says_how_it_ended(code, words):
    assert describe_exit(code) == words
