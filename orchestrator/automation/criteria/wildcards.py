"""Wildcards of file names as regular expressions: `*`, `?`, `[seq]`, `[!seq]`."""

from __future__ import annotations

import re

_PART = re.compile(r"\*+|\?|\[(!?+)(\][^\]]*|[^\]]+)\]|.", re.DOTALL)
_IN_SET = re.compile(r"([\\\[\]^&~|])")


def as_expression(pattern: str) -> str:
    """Return the expression of RE2 that matches the same texts as a whole.

    A bracket without its end stands for itself, as in a shell.
    """
    return rf"\A(?s:{_PART.sub(_translated, pattern)})\z"


def _translated(part: re.Match[str]) -> str:
    text = part[0]
    if text[0] == "*":
        return ".*"
    if text == "?":
        return "."
    if part[2] is not None:
        members = _IN_SET.sub(r"\\\1", part[2])
        return f"[{'^' if part[1] else ''}{members}]"
    return re.escape(text)
