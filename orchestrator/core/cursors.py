"""Where the next page of a listing begins, as text: the key of the last row that was seen."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TypeVar

from orchestrator.core.errors import MusterError

ID_MAX = 2**63 - 1

Key = TypeVar("Key")


class InvalidCursor(MusterError):
    """Not a cursor of this listing; take the one that the page before ended with."""


def write(key: object) -> str:
    """The cursor of the page after the row with this key."""
    return base64.urlsafe_b64encode(str(key).encode()).rstrip(b"=").decode()


def read(text: str, key: Callable[[str], Key]) -> Key:
    """The key that a cursor holds; `key` reads it, and raises ValueError. Raises InvalidCursor."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return key(base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii"))
    except (ValueError, binascii.Error):
        raise InvalidCursor from None


def whole_number(text: str) -> int:
    """A `key`, for rows that are numbered. Raises ValueError."""
    number = int(text)
    if not 0 < number <= ID_MAX:
        raise ValueError
    return number
