"""A message of which half has come, and whose rest may never come, keeps nobody."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.transport import TCPTransport

from orchestrator.core import brokers

PAYLOAD = b"x" * 1000
FRAME = struct.pack(">BHI", 3, 1, len(PAYLOAD)) + PAYLOAD + b"\xce"


class Link:
    """A connection that reads frames as py-amqp's does, and keeps what it has read."""

    def __init__(self, transport: TCPTransport) -> None:
        self.transport = transport
        self.connection = SimpleNamespace(sock=transport.sock)
        self.read: list[bytes] = []

    def drain_events(self, *, timeout: float) -> None:
        assert timeout > 0, "py-amqp would try for ever"
        with self.transport.having_timeout(timeout):
            self.read.append(self.transport.read_frame()[2])


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, Link]]:
    """The broker's end of a connection, and ours."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport: Any = TCPTransport(f"127.0.0.1:{server.getsockname()[1]}", connect_timeout=5)
        transport.connect()
        broker, _ = server.accept()
        with broker:
            broker.recv(8)  # its greeting
            yield broker, Link(transport)
        transport.close()


def drained(link: Any) -> bool:
    try:
        brokers.drain_come(link)
    except TimeoutError:
        return False
    return True


def test_half_a_message_keeps_nobody_and_is_not_lost(wire: tuple[socket.socket, Link]) -> None:
    broker, link = wire
    broker.sendall(FRAME[:500])
    began = time.monotonic()
    assert not drained(link)
    assert time.monotonic() - began < 5
    broker.sendall(FRAME[500:])
    while not drained(link):
        assert time.monotonic() - began < 5
    assert link.read == [PAYLOAD]


def test_every_wait_on_a_connection_has_a_limit(rabbitmq_url: str, settings: Any) -> None:
    settings.BROKER_URL = rabbitmq_url
    with brokers.connection(limit_seconds=3) as link:
        brokers.ensure_connected(link)
        assert link.connection.sock.gettimeout() == 3
        with pytest.raises(TimeoutError):
            link.drain_events(timeout=0.01)
        assert link.connection.sock.gettimeout() == 3


def test_limit_holds_in_the_middle_of_a_message(wire: tuple[socket.socket, Link]) -> None:
    broker, link = wire
    broker.sendall(FRAME[:500])
    link.connection.sock.settimeout(0.2)  # as that of a connection has one
    with pytest.raises(TimeoutError):
        link.transport.read_frame()
    broker.sendall(FRAME[500:])
    assert link.transport.read_frame()[2] == PAYLOAD


def test_whole_messages_are_read_and_nothing_is_waited_for(
    wire: tuple[socket.socket, Link],
) -> None:
    broker, link = wire
    assert not drained(link)
    broker.sendall(2 * FRAME)
    while len(link.read) < 2:
        drained(link)
    assert link.read == [PAYLOAD, PAYLOAD]
    assert not drained(link)
