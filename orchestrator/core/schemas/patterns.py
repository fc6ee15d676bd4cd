"""Patterns that match in linear time, by RE2: it never goes back in a text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from orchestrator.core.errors import MusterError

MEMORY_LIMIT = 1 << 20
"""Bytes that one compiled pattern may take, which bounds its states."""

LENGTH_LIMIT = 10_000
"""Characters of a pattern."""

EXPECTED = "a regular expression of RE2, which has no look-around and no back references"

LONGEST_REST = 20
"""Characters of a pattern that a reason quotes."""

_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]+)\}|u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_BACK_REFERENCE = re.compile(r"invalid escape sequence: (\\[1-9k])")
_GROUPS = {
    "(?=": "look-ahead",
    "(?!": "look-ahead",
    "(?<=": "look-behind",
    "(?<!": "look-behind",
    "(?>": "an atomic group",
}


class InvalidPattern(MusterError):
    """The pattern is none of RE2's; the text says what was found."""


@lru_cache(maxsize=256)
def compiled(pattern: str, *, ignore_case: bool = False, dot_matches_all: bool = False) -> Any:
    """Return the pattern for texts in UTF-8. Raises InvalidPattern."""
    if len(pattern) > LENGTH_LIMIT:
        raise InvalidPattern(f"{len(pattern):,} characters, at most {LENGTH_LIMIT:,} are possible")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY_LIMIT
    options.case_sensitive = not ignore_case
    options.dot_nl = dot_matches_all
    try:
        return re2.compile(_translated(pattern).encode("utf-8", "replace"), options)
    except re2.error as error:
        raise InvalidPattern(_reason(error)) from None


def matches(pattern: str, text: str) -> bool:
    """Return True if the pattern matches somewhere in the text. Raises InvalidPattern."""
    # as bytes: the package would count the characters before each match
    return compiled(pattern).search(text.encode("utf-8", "replace")) is not None


def size(pattern: str) -> int:
    """The number of states that a match may be in at each character. Raises InvalidPattern."""
    return int(compiled(pattern).programsize)


def _translated(pattern: str) -> str:
    r"""Write the `\u00e9` and `\u{e9}` of ECMA-262 as RE2's `\x{e9}`."""

    def translated(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2]
        return f"\\x{{{code}}}" if code else escape[0]

    return _ESCAPE.sub(translated, pattern)


def _reason(error: re2.error) -> str:
    text = error.args[0]
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    if reference := _BACK_REFERENCE.fullmatch(text):
        return f"a back reference {reference[1]}"
    what, _, where = text.partition(": ")
    if where in _GROUPS:
        return f"{_GROUPS[where]} {where}"
    # the rest of the pattern may be all of it, which is not ours to quote
    return text if len(where) <= LONGEST_REST else what
