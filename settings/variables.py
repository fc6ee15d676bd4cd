"""Readers of environment variables that are not Muster's own. A wrong value is refused, not
guessed at."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from django.core.exceptions import ImproperlyConfigured

SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}


@contextlib.contextmanager
def refused_in_one_line(*, is_traced: bool = False) -> Iterator[None]:
    """End this process with one line, not with a traceback, if a setting is wrong."""
    try:
        yield
    except ImproperlyConfigured as error:
        if is_traced:
            raise
        sys.exit(f"Wrong setting: {' '.join(str(error).split())}")


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
