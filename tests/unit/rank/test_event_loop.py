"""What an event loop may still call of the user's, and what it calls for itself."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from tornado.ioloop import IOLoop, PeriodicCallback

from labkit.rank.asyncio_internals import readers_of_users, timers_of_users


def send() -> None:
    """Stand for a function of the user's."""


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


def test_an_empty_loop_calls_nothing_of_the_users(loop):
    async def wait() -> None:
        await asyncio.sleep(60)

    task = loop.create_task(wait())
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    assert timers_of_users(loop) == readers_of_users(loop) == []
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (send, "send"),
        (functools.partial(send), "send"),
        (dist.send, "send"),
        (threading.Event().set, "set"),
        (threading.Lock().acquire, "acquire"),
    ],
)
def test_a_timer_is_named_whatever_it_calls(loop, function, name):
    timer = loop.call_later(60, function)
    assert timers_of_users(loop) == [name]
    timer.cancel()
    assert timers_of_users(loop) == []


def test_timers_of_tornado_are_named_by_what_they_call(loop):
    IOLoop(asyncio_loop=loop, make_current=False).call_later(60, send)
    assert "send" in timers_of_users(loop)


def test_a_periodic_callback_is_one_of_the_users(loop):
    async def begin() -> PeriodicCallback:
        again = PeriodicCallback(send, 60_000)
        again.start()
        return again

    again = loop.run_until_complete(begin())
    assert timers_of_users(loop) != []
    again.stop()


def test_a_reader_and_a_handler_of_a_signal_are_named(loop):
    read, write = os.pipe()
    assert readers_of_users(loop) == []
    loop.add_reader(read, send)
    assert readers_of_users(loop) == ["send"]
    loop.remove_reader(read)
    loop.add_signal_handler(signal.SIGUSR1, send)
    assert readers_of_users(loop) == ["send"]
    loop.remove_signal_handler(signal.SIGUSR1)
    assert readers_of_users(loop) == []
    os.close(read)
    os.close(write)
