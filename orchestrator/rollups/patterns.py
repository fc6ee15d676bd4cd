"""The pattern of a message: what stays when ids, numbers, names and values are replaced by `#`.

Messages of one cause have one pattern. It is also all of a message that is stored for a cause:
whatever may be a value is left out, so that a secret that nobody has marked yet is not kept.
"""

from __future__ import annotations

import re

from orchestrator.rollups.models import PATTERN_MAX

READ_MAX = 1_000
"""Characters of a message that are read, after its secrets were removed."""

VALUES = re.compile(
    r"""
    \*{3,}                                          # removed before
    | [a-z][a-z0-9+.-]*://\S+                       # addresses
    | (?<!\w)(?:"[^"\n]*"|'[^'\n]*'|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”)(?!\w)  # what is quoted
    | (?<=[=])[^\s,;)\]}]+                          # what follows an equals sign
    | \S*@\S+                                       # addresses of mail
    | (?:[A-Za-z]:)?[.~]{0,2}[\\/][^\s:,;)'"]+      # paths
    | [^\s()\[\]{},;:="'<>]*\d[^\s()\[\]{},;="'<>]* # whatever has a digit: ids, times, w2, 30s
    | [\w+/-]{25,}={0,2}                            # long words: keys, hashes, encoded texts
    """,
    re.VERBOSE | re.IGNORECASE,
)
SEVERAL = re.compile(r"#(?:[\s,;:/|.-]*#)+")
BLANKS = re.compile(r"\s+")


def of(message: str) -> str:
    """The pattern of a message, whose secrets are removed already."""
    text = VALUES.sub("#", message[:READ_MAX].replace("\0", " "))
    return SEVERAL.sub("#", BLANKS.sub(" ", text)).strip()[:PATTERN_MAX]
