"""Results that can be stored: JSON that PostgreSQL's `jsonb` accepts."""

from __future__ import annotations

import json
import re
from typing import Any

from orchestrator.core.errors import MusterError
from workers import hiding

LIMIT_BYTES = 1_048_576
"""Largest result of a Python action: a result is for numbers and names, not for the data itself."""

SHOWN_CHARACTERS = 200

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ESCAPE = re.compile(r"\\(?:u0000|.)")
NUL_ESCAPE = "\\u0000"

_encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


class NotStorable(MusterError):
    """The action's result cannot be stored as JSON."""


def storable(value: Any, *, limit_bytes: int = LIMIT_BYTES) -> Any:
    """Convert a value to plain JSON types. Raises NotStorable."""
    return json.loads(written(value, limit_bytes=limit_bytes))


def written(value: Any, *, limit_bytes: int = LIMIT_BYTES) -> str:
    """Write a value as JSON. Raises NotStorable.

    NUL characters and lone surrogates, which jsonb cannot store, become U+FFFD, to keep the rest of
    the text. NaN and infinity are refused: no number could replace them.
    """
    return _replaced(_dumped(value), limit_bytes)


def _dumped(value: Any) -> str:
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise NotStorable("The action returned something nested too deeply for JSON.") from None
    except (TypeError, ValueError) as error:
        raise NotStorable(f"The action must return JSON-serialisable data: {error}.") from None


def _replaced(written: str, limit_bytes: int) -> str:
    """This JSON, the very same if nothing in it had to be replaced."""
    written = _without_nul(written)
    try:
        size_bytes = len(written.encode())
    except UnicodeEncodeError:
        written = without_surrogates(written)
        size_bytes = len(written.encode())
    if size_bytes > limit_bytes:
        raise NotStorable(
            f"The action returned {size_bytes:,} bytes of JSON; at most {limit_bytes:,} are kept. "
            "Return where the data is instead of the data."
        )
    return written


def from_json(written: bytes, *, limit_bytes: int = LIMIT_BYTES) -> Any:
    """Read the result that a process wrote; None if it wrote nothing. Raises NotStorable."""
    if not written.strip():
        return None
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        shown = text(hiding.hidden(written.decode("utf-8", "replace"))[:SHOWN_CHARACTERS])
        raise NotStorable(f"Its result must be JSON, and begins with {shown!r}.") from None
    dumped = _dumped(value)
    replaced = _replaced(dumped, limit_bytes)
    return value if replaced is dumped else json.loads(replaced)


def text(value: str) -> str:
    """Replace the characters of a text that jsonb cannot store."""
    return without_surrogates(value).replace("\0", REPLACEMENT)


def without_surrogates(value: str) -> str:
    """Replace surrogates: pairs by their character, lone ones by U+FFFD."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _without_nul(written: str) -> str:
    r"""Replace NUL escape by escape, so that the text `\\u0000`, a backslash and five characters,
    stays."""
    if NUL_ESCAPE not in written:
        return written
    return ESCAPE.sub(lambda match: REPLACEMENT if match[0] == NUL_ESCAPE else match[0], written)
