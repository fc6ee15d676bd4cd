"""The grammar of searches: terms, each with its place in the text. Knows no key and no database.

search = (term | word)*                    separated by blanks; all of them must hold
term   = ["-"] key ":" value ("," value)*  any of the values; "-" for none of them
word   = ["-"] value ("," value)*          free text
key    = letters, and after a dot a path: status, param.order
value  = what has no blank, comma or quote | '"' any text, with \\" and \\\\ '"'
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.core.errors import MusterError

LONGEST = 1_000
"""Characters of a search."""

KEY = re.compile(r"([A-Za-z_]+(?:\.[^\s:,\"]*)?):")
BARE = re.compile(r"[^\s,\"]+")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Mistake:
    """A mistake: what cannot be read, its place in the text, and what is expected there."""

    start: int
    end: int
    message: str


class NotUnderstood(MusterError):
    """A search that cannot be read. Nothing of it is applied."""

    def __init__(self, text: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(_marked(text, each) for each in mistakes))
        self.text = text
        self.mistakes = list(mistakes)


@dataclass(frozen=True)
class Value:
    """One value of a term, or one word."""

    text: str
    start: int
    end: int
    is_quoted: bool = False


@dataclass(frozen=True)
class Term:
    """One condition: any of the values, or, negated, none of them."""

    key: str
    """Empty for free text."""
    key_start: int
    values: tuple[Value, ...]
    is_negated: bool = False

    @property
    def key_end(self) -> int:
        return self.key_start + len(self.key)


def parse(text: str) -> list[Term]:
    """Read the terms of a search. Raises NotUnderstood with the first mistake."""
    try:
        _check(text)
        return list(_terms(text))
    except _Wrong as wrong:
        raise NotUnderstood(text, [wrong.mistake]) from None


def term(key: str, value: str) -> str:
    """Write a term whose value is exactly this text."""
    is_bare = BARE.fullmatch(value) and not value.endswith("*")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f"{key}:{value}" if is_bare else f'{key}:"{escaped}"'


class _Wrong(Exception):
    def __init__(self, start: int, end: int, message: str) -> None:
        self.mistake = Mistake(start, end, message)


def _check(text: str) -> None:
    if len(text) > LONGEST:
        raise _Wrong(LONGEST, len(text), f"a search has at most {LONGEST:,} characters")
    for place, character in enumerate(text):
        # a blank such as a tab separates; a half of a surrogate cannot be sent to a database
        if unicodedata.category(character) in ("Cc", "Cs") and not character.isspace():
            raise _Wrong(place, place + 1, "a control character")


def _terms(text: str) -> Iterator[Term]:
    place = _after_blanks(text, 0)
    while place < len(text):
        is_negated = text[place] == "-"
        start = place + is_negated
        if text[start : start + 1] in ("", "-") or text[start].isspace():
            raise _Wrong(place, start, "expected a term after the minus; put a text in quotes")
        named = KEY.match(text, start)
        key = named[1] if named else ""
        values = tuple(_values(text, named.end() if named else start, key))
        yield Term(key, start, values, is_negated)
        place = _after_blanks(text, values[-1].end)


def _values(text: str, place: int, key: str) -> Iterator[Value]:
    """The values that begin here, up to a blank."""
    while True:
        value = _value(text, place, key)
        yield value
        if value.end == len(text) or text[value.end].isspace():
            return
        if text[value.end] != ",":
            expected = "expected a blank or a comma after a quote"
            if not value.is_quoted:
                expected = "a quote inside of a value; put all of the value in quotes"
            raise _Wrong(value.end, value.end + 1, expected)
        place = value.end + 1


def _value(text: str, place: int, key: str) -> Value:
    if quoted := QUOTED.match(text, place):
        return Value(ESCAPED.sub(r"\1", quoted[1]), place, quoted.end(), is_quoted=True)
    if text[place : place + 1] == '"':
        raise _Wrong(place, len(text), "a quote that is not closed")
    if bare := BARE.match(text, place):
        return Value(bare[0], place, bare.end())
    example = f", such as {key}:value" if key else ""
    raise _Wrong(max(0, place - 1), max(1, place), f"expected a value here{example}")


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _marked(text: str, mistake: Mistake) -> str:
    """The message, the text, and below it a mark at the place of the mistake."""
    line = "".join(" " if each.isspace() else each for each in text[:LONGEST])
    end = min(mistake.end, LONGEST + 1)
    mark = " " * mistake.start + "^" * max(1, end - mistake.start)
    return f"{mistake.message}\n  {line}\n  {mark}"
