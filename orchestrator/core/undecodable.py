"""Messages that RabbitMQ passes on and py-amqp cannot decode are read as far as they can be.

py-amqp decodes them as it reads from the connection. An error there breaks that, and with it every
consumer that shares it; then the broker delivers the message again, without an end. So this module
puts its own functions in the place of two of py-amqp's, for all connections of a process.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

from amqp import abstract_channel, serialization
from amqp.basic_message import Message
from amqp.exceptions import FrameSyntaxError
from amqp.spec import Basic

UNDECODED = "undecoded"
"""A property that AMQP does not have, of a message that py-amqp cannot decode: why it cannot."""

UNDECODABLE = (
    ArithmeticError,
    FrameSyntaxError,
    LookupError,
    OSError,
    RecursionError,
    ValueError,
    struct.error,
)
"""Errors of py-amqp about what RabbitMQ lets pass: text that is not UTF-8, times after the year
9999, tables in tables in tables."""


class _AnyText(bytes):
    """Bytes that are text to py-amqp whatever they are: what is not UTF-8 is left out."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _AnyText(found) if isinstance(found, bytes) else found

    def decode(self, *_: str) -> str:
        return super().decode("utf-8", "ignore")


def _properties(buffer: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """Decode the properties of a message, among them its headers; of one that cannot be decoded,
    those that can, and UNDECODED."""
    try:
        return serialization.decode_properties_basic(buffer, offset)
    except UNDECODABLE as error:
        return {**_decodable(buffer, offset), UNDECODED: str(error)}, len(buffer)


def _decodable(buffer: bytes, offset: int) -> dict[str, Any]:
    """Decode each property alone, and leave out those that cannot be decoded."""
    flags = int.from_bytes(buffer[offset : offset + 2], "big")
    offset += 2
    properties: dict[str, Any] = {}
    for place, (name, kind) in enumerate(Message.PROPERTIES):
        if not flags & 0x8000 >> place:
            continue
        with suppress(*UNDECODABLE):
            [properties[name]], _ = serialization.loads(kind, buffer, offset)
        offset += _size(kind, buffer, offset)
    return properties


def _size(kind: str, buffer: bytes, offset: int) -> int:
    """The bytes that a property takes."""
    if kind == "s":
        return 1 + buffer[offset]
    if kind == "F":
        return 4 + int.from_bytes(buffer[offset : offset + 4], "big")
    return {"o": 1, "L": 8}[kind]


def _arguments(format: str, buf: bytes, offset: int) -> tuple[Any, ...]:
    """Decode the arguments of a method: a publisher chooses the routing key of a delivery."""
    try:
        return serialization.loads(format, buf, offset)
    except UnicodeDecodeError:
        return serialization.loads(format, _AnyText(buf), offset)


serialization.PROPERTY_CLASSES[Basic.CLASS_ID] = _properties  # type: ignore[assignment]
abstract_channel.loads = _arguments
