"""What is known of connections: whether they are made, and nothing later of sockets."""

from __future__ import annotations

import time

import pytest
import zmq

from labkit.launch.engine import Handshakes


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


def connect(socket, url):
    socket.connect(url)


def test_connections_that_are_made_are_waited_for(context, tmp_path):
    with context.socket(zmq.ROUTER) as hub, context.socket(zmq.ROUTER) as other:
        urls = [f"ipc://{tmp_path}/{number}" for number in range(2)]
        hub.bind(urls[0])
        other.bind(urls[1])
        with context.socket(zmq.DEALER) as engine:
            handshakes = Handshakes(connect)
            for url in urls:
                handshakes.connect(engine, url)
            assert handshakes.wait(10)
            assert handshakes.wait(0)  # nothing is left to wait for


def test_one_that_is_not_made_is_not_waited_for_longer(context, tmp_path):
    with context.socket(zmq.DEALER) as engine:
        engine.linger = 0
        handshakes = Handshakes(connect)
        handshakes.connect(engine, f"ipc://{tmp_path}/nobody")
        began = time.monotonic()
        assert not handshakes.wait(0.1)
        assert time.monotonic() - began < 5


def test_the_other_arguments_are_passed_on(context):
    given = []
    with context.socket(zmq.DEALER) as engine:
        handshakes = Handshakes(lambda *arguments, **named: given.append((arguments, named)))
        handshakes.connect(engine, "ipc://somewhere", b"key", public=b"other")
        assert given == [((engine, "ipc://somewhere", b"key"), {"public": b"other"})]
        assert not handshakes.wait(0)
