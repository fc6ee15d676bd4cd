"""Cursors of listings: the key of the last row of a page, as text."""

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
    """Write the cursor of the page after the row with this key."""
    return base64.urlsafe_b64encode(str(key).encode()).rstrip(b"=").decode()


def read(text: str, key: Callable[[str], Key]) -> Key:
    """Read the key in a cursor; `key` parses it, and raises ValueError. Raises InvalidCursor."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return key(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (ValueError, binascii.Error):
        raise InvalidCursor from None


def text(text: str) -> str:
    """Take the key of rows with names. Raises ValueError."""
    if "\0" in text:
        raise ValueError
    return text


def whole_number(text: str) -> int:
    """Parse the key of numbered rows. Raises ValueError."""
    number = int(text)
    if not 0 < number <= ID_MAX:
        raise ValueError
    return number
