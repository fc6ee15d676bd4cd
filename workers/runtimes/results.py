"""What can be stored: JSON as PostgreSQL's `jsonb` takes it."""

from __future__ import annotations

import json
import re
from typing import Any

from orchestrator.core.errors import MusterError

LIMIT_BYTES = 1_048_576
"""Largest result of a Python action: a result is for numbers and names, not for the data itself."""

SHOWN_BYTES = 200

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ESCAPE = re.compile(r"\\(?:u0000|.)")
NUL_ESCAPE = "\\u0000"


class NotStorable(MusterError):
    """What the action returned cannot be stored as JSON."""


def storable(value: Any, *, limit_bytes: int = LIMIT_BYTES) -> Any:
    """The same value in plain JSON types. Raises NotStorable.

    NUL characters and lone surrogates, which jsonb has no room for, become U+FFFD: the rest of
    the text is worth keeping. NaN and infinity are refused: no number could stand for them.
    """
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except RecursionError:
        raise NotStorable("The action returned something nested too deeply for JSON.") from None
    except (TypeError, ValueError) as error:
        raise NotStorable(f"The action must return JSON-serialisable data: {error}.") from None
    written = _without_nul(without_surrogates(written))
    if (size_bytes := len(written.encode())) > limit_bytes:
        raise NotStorable(
            f"The action returned {size_bytes:,} bytes of JSON; at most {limit_bytes:,} are kept. "
            "Return where the data is instead of the data."
        )
    return json.loads(written)


def from_json(written: bytes) -> Any:
    """What a command wrote as its result; None if it wrote nothing. Raises NotStorable."""
    if not written.strip():
        return None
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        shown = text(written[:SHOWN_BYTES].decode("utf-8", "replace"))
        raise NotStorable(f"Its result must be JSON, and begins with {shown!r}.") from None
    return storable(value)


def text(value: str) -> str:
    """The same text without what jsonb cannot hold."""
    return without_surrogates(value).replace("\0", REPLACEMENT)


def without_surrogates(value: str) -> str:
    """Pairs become the character that they mean, lone ones become U+FFFD."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _without_nul(written: str) -> str:
    r"""Escape by escape, so that the text `\\u0000`, a backslash and five characters, stays."""
    if NUL_ESCAPE not in written:
        return written
    return ESCAPE.sub(lambda match: REPLACEMENT if match[0] == NUL_ESCAPE else match[0], written)
