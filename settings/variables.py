"""Readers of environment variables that are not Muster's own. A wrong value is refused, not
guessed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.core.exceptions import ImproperlyConfigured

SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}


def switch(environ: Mapping[str, str], name: str) -> bool:
    """Read on or off; off by default."""
    text = environ.get(name, "")
    if text.lower() not in SWITCH:
        raise ImproperlyConfigured(f"{name}={text!r}: expected on or off.")
    return SWITCH[text.lower()]


def whole(environ: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Read a whole number from 1 to `most`."""
    text = environ.get(name, str(default))
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= most:
        raise ImproperlyConfigured(f"{name}={text!r}: expected a whole number from 1 to {most}.")
    return number


def one_of(environ: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Read one of these; the first by default."""
    text = environ.get(name) or choices[0]
    if text not in choices:
        expected = ", ".join(filter(None, choices))
        raise ImproperlyConfigured(f"{name}={text!r}: expected one of {expected}.")
    return text
