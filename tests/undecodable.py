"""Messages that py-amqp cannot decode, as a foreign client may publish them."""

from __future__ import annotations

from struct import pack
from typing import Any

from amqp.basic_message import Message

HEADERS, CORRELATION_ID, MESSAGE_ID = 0x2000, 0x0400, 0x0080
"""The flags of properties."""


class Raw(Message):
    """A message with these bytes as its properties."""

    def __init__(self, body: bytes, properties: bytes) -> None:
        super().__init__(body)
        self.raw = properties

    def _serialize_properties(self) -> bytes:
        return self.raw


def properties(flags: int, content: bytes) -> bytes:
    return pack(">H", flags) + content


def headers(name: bytes, value: bytes) -> bytes:
    item = bytes([len(name)]) + name + value
    return pack(">I", len(item)) + item


def _deep(levels: int) -> bytes:
    value = b"V"
    for _ in range(levels):
        value = b"A" + pack(">I", len(value)) + value
    return value


def _time(seconds: int) -> bytes:
    return b"T" + pack(">Q", seconds)


TEXT = properties(HEADERS | CORRELATION_ID, headers(b"x-a", b"t\x01") + b"\x02\xff\xfe")
"""A header that can be decoded, and an id that cannot."""

UNDECODABLE = {
    "correlation id": TEXT,
    "message id": properties(MESSAGE_ID, b"\x01\xff"),
    "milliseconds": properties(HEADERS, headers(b"x-at", _time(1_700_000_000_000))),
    "a time beyond all clocks": properties(HEADERS, headers(b"x-at", _time(2**56))),
    "tables in tables": properties(HEADERS, headers(b"x-deep", _deep(3_000))),
}

BYTES_AS_NAME = properties(HEADERS, headers(b"x-\xff", b"t\x01"))
"""py-amqp reads it, and leaves the name as bytes."""


def publish(
    channel: Any, content: bytes, *, to: bytes | str, body: bytes, exchange: str = ""
) -> None:
    channel.basic_publish(Raw(body, content), exchange=exchange, routing_key=to)
