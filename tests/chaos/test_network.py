"""A wire passes on, falls silent, breaks, and is whole again."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.network import Network
from tests.relays import Wire

LIMIT_SECONDS = 10
SILENCE_SECONDS = 0.3


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while chunk := client.recv(100):
                client.sendall(chunk)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def wire(echo: int) -> Iterator[Wire]:
    wire = Wire("127.0.0.1", echo)
    with wire:
        yield wire
        wire.mend()


def _connect(wire: Wire) -> socket.socket:
    return socket.create_connection(("127.0.0.1", wire.port), timeout=LIMIT_SECONDS)


def _asked(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(100)


def test_wire_passes_on(wire: Wire) -> None:
    with _connect(wire) as client:
        assert _asked(client, b"one") == b"one"


def test_silent_wire_keeps_its_connections_and_delivers_late(wire: Wire) -> None:
    with _connect(wire) as client:
        assert _asked(client, b"one") == b"one"
        wire.hush()
        client.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            _asked(client, b"two")
        wire.mend()
        client.settimeout(LIMIT_SECONDS)
        assert client.recv(100) == b"two"


def test_silent_wire_takes_new_connections_that_hear_nothing(wire: Wire) -> None:
    wire.hush()
    with _connect(wire) as client:
        client.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            _asked(client, b"one")


def test_wire_falls_silent_with_certain_words_which_still_arrive(wire: Wire) -> None:
    with _connect(wire) as client, ThreadPoolExecutor(1) as beside:
        silenced = beside.submit(wire.hush_after, b"last", within_seconds=LIMIT_SECONDS)
        while not wire.is_listening:
            time.sleep(0.01)
        client.sendall(b"the last word")
        assert silenced.result()
        client.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            client.recv(100)
        wire.mend()
        client.settimeout(LIMIT_SECONDS)
        assert client.recv(100) == b"the last word"
        assert not wire.hush_after(b"never said", within_seconds=0.01)
        assert _asked(client, b"goes on") == b"goes on"


def test_cut_wire_breaks_and_refuses_until_it_is_mended(wire: Wire) -> None:
    with _connect(wire) as client:
        assert _asked(client, b"one") == b"one"
        wire.cut()
        with contextlib.suppress(ConnectionError):
            assert client.recv(100) == b""
    with _connect(wire) as client, contextlib.suppress(ConnectionError):
        assert _asked(client, b"two") == b""
    wire.mend()
    with _connect(wire) as client:
        assert _asked(client, b"three") == b"three"


def test_each_service_has_wires_of_its_own(echo: int) -> None:
    urls = {
        "DATABASE_URL": f"postgresql://somebody@127.0.0.1:{echo}/storm",
        "BROKER_URL": f"amqp://guest:guest@127.0.0.1:{echo}/storm",
    }
    network = Network(urls)
    try:
        one, other = network.environment("w1"), network.environment("w2")
        assert one == network.environment("w1")
        assert one["DATABASE_URL"] != other["DATABASE_URL"]
        port = network.wire("w1", "broker").port
        assert one["BROKER_URL"] == f"amqp://guest:guest@127.0.0.1:{port}/storm"
    finally:
        network.close()
