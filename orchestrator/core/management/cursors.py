"""Where the next page of a listing begins, as text."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from orchestrator.core.errors import MusterError

ID_MAX = 2**63 - 1


class InvalidCursor(MusterError):
    """Not a cursor of this listing; take the one that the page before ended with."""


def write(key: object) -> str:
    """The cursor of the page after the row with this key."""
    return base64.urlsafe_b64encode(str(key).encode()).rstrip(b"=").decode()


def read(text: str) -> str:
    """The key that a cursor holds. Raises InvalidCursor."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        raise InvalidCursor from None


def read_number(text: str) -> int:
    """The serial key that a cursor holds. Raises InvalidCursor."""
    number = read(text)
    if not (number.isascii() and number.isdigit() and int(number) <= ID_MAX):
        raise InvalidCursor
    return int(number)


def read_uuid(text: str) -> UUID:
    """The id that a cursor holds. Raises InvalidCursor."""
    try:
        return UUID(read(text))
    except ValueError:
        raise InvalidCursor from None
