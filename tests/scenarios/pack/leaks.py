"""Actions with a secret: one gives it away in every way, one tells its digest."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
from typing import Any
from urllib.parse import quote


def leak(*, fails: bool = False, **given: Any) -> dict[str, Any]:
    texts = [value for value in given.values() if isinstance(value, str)]
    forms = [form for text in texts for form in _forms(text)]
    for form in forms:
        sys.stdout.write(f"given {form[:5]}")
        sys.stdout.write(f"{form[5:]}\n")
        sys.stderr.write(f"{form}\n")
        logging.getLogger("leak").warning("given %s", form)
    if fails:
        raise ValueError(f"no luck with {given}, that is {forms}")
    return {"given": given, "forms": forms, "as names": dict.fromkeys(texts, 1)}


def _forms(text: str) -> list[str]:
    content = text.encode()
    return [
        text,
        json.dumps(json.dumps(text)),
        quote(text, safe=""),
        content.hex(),
        content.hex().upper(),
        *(base64.b64encode(b"x" * before + content).decode() for before in range(3)),
        *(base64.urlsafe_b64encode(b"x" * before + content).decode() for before in range(3)),
    ]


def digest(*, token: str) -> dict[str, str]:
    return {"sha256": hashlib.sha256(token.encode()).hexdigest()}
