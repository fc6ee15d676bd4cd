"""The text that a sender signs: `v0:{timestamp}:{body}`, split once and never formatted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

TIMESTAMP, ID, BODY = PLACES = ("timestamp", "id", "body")
_PLACE = re.compile(r"\{(\w*)\}")

Parts = tuple[tuple[str, str], ...]
"""Each a literal and the place after it, which is empty at the end."""


def split(text: str) -> Parts:
    """Split at the places. What a sender puts into one of them is never read as another."""
    parts, end = [], 0
    for match in _PLACE.finditer(text):
        parts.append((text[end : match.start()], match[1]))
        end = match.end()
    return (*parts, (text[end:], ""))


def places_in(text: str) -> list[str]:
    """The names of the places, in their order."""
    return [place for _, place in split(text) if place]


def faults(text: str) -> Iterator[str]:
    """Find what makes a text useless, or ambiguous."""
    places = places_in(text)
    if unknown := sorted({place for place in places if place not in PLACES}):
        yield f"expected {{timestamp}}, {{id}} and {{body}}, found {{{unknown[0]}}}"
    if places.count(BODY) != 1 or any(places.count(place) > 1 for place in places):
        yield "expected {body} once, and no other place twice"
    if any(not literal for literal, place in split(text)[1:] if place):
        yield "expected a character between two places: otherwise one could be read as the other"


def filled(parts: Parts, values: Mapping[str, bytes]) -> bytes:
    """The bytes that are signed."""
    return b"".join(
        literal.encode() + (values[place] if place else b"") for literal, place in parts
    )
