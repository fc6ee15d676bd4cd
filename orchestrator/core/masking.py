"""Masking of known secret values in what is about to be stored or logged.

A value is found as it is, in base64 (anywhere in a longer text, standard and URL-safe), in
hexadecimal, and with any of its characters written as in URLs or in JSON. All values in all forms
are one pattern of RE2, so a text is read once, however many there are.

A pattern of many kilobytes is slow, and a larger one is refused. Values that are too much for it
are looked for in a table: in the same forms, but each written in the usual ways alone.

What an action encodes in its own way, or takes apart itself, is not found.
"""

from __future__ import annotations

import base64
import heapq
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import re2

MASK = "***"

LEAST_CHARACTERS = 6
"""A shorter value is not looked for: it would be found in too much that is none."""

LEAST_OF_A_LINE = 16
"""A line of a value is looked for by itself, if it has so many characters."""

LONGEST_PIECE = 256
"""Characters. A longer value is looked for in pieces, which bounds the pattern's states."""

PATTERN_BYTES = 4_096
"""The most bytes of values in the pattern. To compile so many takes up to a tenth of a second,
in which no other thread of the process works."""

HEAD_BYTES = LEAST_CHARACTERS
"""The beginning by which a form is found in the table; none is shorter."""

BASE64_LINE = 76
"""Characters in a line of base64, where an encoder breaks lines."""

MEMORY_LIMIT = 64 << 20
"""Bytes that the pattern may take; twenty ordinary values take about one of these."""

AS_JSON = json.JSONEncoder(ensure_ascii=False, check_circular=False, default=str)

SEPARATOR = b"\0"
"""Between the texts of one JSON value. No value contains it, as no parameter may."""


def worth_masking(value: Any) -> Iterator[str]:
    """Find the texts and numbers inside a JSON value that are long enough to be looked for."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif isinstance(each, str | int | float) and not isinstance(each, bool):
            text = str(each).strip()
            if len(text) >= LEAST_CHARACTERS:
                yield text


class Masker:
    """Masks the given values; those that are too short are left out."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values = tuple(values)
        few, others = _divided(self.values)
        pieces = sorted({piece for value in few for piece in _pieces(value)})
        self._pattern = _compiled(pieces) if pieces else None
        self._table = _table(others)
        every_piece = itertools.chain(pieces, *map(_pieces, others))
        self.longest_bytes = max(map(_longest_form, every_piece), default=0)
        """The most bytes that a form of one piece has."""

    def __bool__(self) -> bool:
        return self._pattern is not None or bool(self._table)

    def content(self, content: bytes) -> bytes:
        """Replace every value in the bytes by `***`; returns the same bytes if there is none."""
        parts, at = [], 0
        for start, end in self.spans(content):
            parts += [content[at:start], MASK.encode()]
            at = end
        return b"".join([*parts, content[at:]]) if parts else content

    def text(self, text: str) -> str:
        """Replace every value in the text by `***`."""
        if not self:
            return text
        content = _encoded(text)
        masked = self.content(content)
        return text if masked is content else _decoded(masked)

    def value(self, value: Any) -> Any:
        """Replace every value in a JSON value, names of properties included, by `***`.

        It is searched as one text, however deeply it is nested. A value with nothing to hide is
        returned as it is.
        """
        if not self or not self._may_be_in(value):
            return value
        copied = _Copy(value)
        texts = [_encoded(str(items[n])) for items, n in copied.places]
        parts = self.content(SEPARATOR.join(texts)).split(SEPARATOR)
        if len(parts) != len(texts):  # a text has a NUL in it
            parts = [self.content(text) for text in texts]
        for (items, n), text, part in zip(copied.places, texts, parts, strict=True):
            if part != text:
                items[n] = _decoded(part) if isinstance(items[n], str) else MASK
        return copied.whole()

    def _may_be_in(self, value: Any) -> bool:
        """Return False if a JSON value certainly has none of the values in it."""
        try:
            written = AS_JSON.encode(value)
        except RecursionError:
            return True
        return next(self.spans(_encoded(written)), None) is not None

    def spans(self, content: bytes) -> Iterator[tuple[int, int]]:
        """Find the places of the values in the bytes, in order; of those that overlap the first,
        and the longest of those that begin together."""
        matches = self._pattern.finditer(content) if self._pattern is not None else ()
        spans = (match.span() for match in matches)
        if not self._table:
            return spans
        return _apart(heapq.merge(spans, _found(self._table, content), key=_first_and_longest))

    def stream(self) -> Stream:
        """Begin a stream, in which a value is found across chunks too."""
        return Stream(self)


class Stream:
    """Bytes that come in chunks. The last ones are held back, as a value may begin in them."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what can be told by now, masked."""
        if not self._masker:
            return chunk
        self._held += chunk
        # a match that begins before this place is whole, and none can be longer
        return self._taken(before=len(self._held) - self._masker.longest_bytes + 1)

    def end(self) -> bytes:
        """Take the end of the stream; returns the rest, masked."""
        return self._taken(before=len(self._held))

    @property
    def held_bytes(self) -> int:
        return len(self._held)

    def after_gap(self) -> tuple[Stream, int]:
        """Begin after bytes that are lost; returns the stream, and the number of bytes of its
        beginning that may be the rest of a value, which nobody could recognize."""
        return self._masker.stream(), max(0, self._masker.longest_bytes - 1)

    def _taken(self, *, before: int) -> bytes:
        if before <= 0:
            return b""
        parts, at = [], 0
        for start, end in self._masker.spans(self._held):
            if start >= before:
                break
            parts += [self._held[at:start], MASK.encode()]
            at = end
        until = max(at, before)
        parts.append(self._held[at:until])
        self._held = self._held[until:]
        return b"".join(parts)


# --- the texts of a JSON value -------------------------------------------------------------------


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")


class _Copy:
    """A copy of a JSON value, made and changed without recursion: in lists, an object as one of its
    names and one of its items."""

    def __init__(self, value: Any) -> None:
        self._top = [value]
        self._objects: list[tuple[dict[str, Any], list[str], list[Any]]] = []
        self.places: list[tuple[list[Any], int]] = []
        """The places where its texts, names and numbers are, to be changed there."""
        lists: list[list[Any]] = [self._top]
        for items in lists:  # which become more meanwhile
            for n, each in enumerate(items):
                if isinstance(each, dict):
                    names, inner = [str(name) for name in each], list(each.values())
                    items[n] = {}
                    self._objects.append((items[n], names, inner))
                    lists += names, inner
                elif isinstance(each, list | tuple):
                    items[n] = list(each)
                    lists.append(items[n])
                elif each is not None and not isinstance(each, bool):
                    self.places.append((items, n))

    def whole(self) -> Any:
        """The value, with the changes; to be called once."""
        for copied, names, items in self._objects:
            copied.update(zip(names, items, strict=True))
        return self._top[0]


# --- the pattern ---------------------------------------------------------------------------------


def _pieces(value: str) -> Iterator[str]:
    """Split a value into the texts to look for."""
    if len(value) < LEAST_CHARACTERS:
        return
    for start in range(0, len(value), LONGEST_PIECE):
        piece = value[start : start + LONGEST_PIECE]
        yield piece if len(piece) >= LEAST_CHARACTERS else value[-LEAST_CHARACTERS:]
    lines = value.splitlines() if len(value) > LEAST_OF_A_LINE else []
    for line in lines if len(lines) > 1 else ():
        # the frame of a PEM file is no secret
        if len(line.strip()) >= LEAST_OF_A_LINE and not line.startswith("-----"):
            yield from _pieces(line.strip())


def _divided(values: Iterable[str]) -> tuple[list[str], list[str]]:
    """Divide values into those for the pattern, the shortest, and the others."""
    stripped = {value.strip() for value in values}
    ordered = sorted((each for each in stripped if len(each) >= LEAST_CHARACTERS), key=len)
    totals = itertools.accumulate(len(_encoded(each)) for each in ordered)
    n = sum(total <= PATTERN_BYTES for total in totals)
    return ordered[:n], ordered[n:]


def _compiled(pieces: Iterable[str]) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes
    options.longest_match = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = MEMORY_LIMIT
    forms = dict.fromkeys(form for piece in pieces for form in _forms(piece))
    # `re2.compile` would keep the pattern, and so the values, in a cache
    return re2._Regexp(b"|".join(forms), options)


def _forms(piece: str) -> Iterator[bytes]:
    content = _encoded(piece)
    yield b"".join(map(_character, piece))
    yield b"(?i:%s)" % content.hex().encode()
    for before in range(3):
        yield _base64(content, before=before)


def _longest_form(piece: str) -> int:
    """The most bytes of any of the forms: base64 with line ends, or all characters escaped up to
    three times."""
    return max(7 * len(_encoded(piece)), sum(1 if _is_plain(c) else 26 for c in piece))


def _base64(content: bytes, *, before: int) -> bytes:
    """The part that does not depend on what else was encoded, after so many bytes modulo 3."""
    encoded = base64.b64encode(bytes(before) + content)
    form = b""
    for at in range((8 * before + 5) // 6, 8 * (before + len(content)) // 6):
        if form and at % 4 == 0:
            form += LINE_END
        character = encoded[at : at + 1]
        form += {b"+": b"[+-]", b"/": b"[/_]"}.get(character, character)
    return form


LINE_END = rb"(?:[\r\n]|\\[rn])*"
"""Encoders that break lines do so after a multiple of four characters."""

ESCAPES = {"\n": b"n", "\r": b"r", "\t": b"t", "\b": b"b", "\f": b"f"}


def _character(character: str) -> bytes:
    """One character as it is, as in a URL, as in JSON and Python; escaped any number of times."""
    if _is_plain(character):
        return character.encode()
    content, code = _encoded(character), ord(character)
    forms = [rb"(?i:%s)" % b"".join(b"%%%02x" % byte for byte in content)]
    if character == " ":
        forms.append(rb"\+")
    if character in ESCAPES:
        forms.append(rb"\\+%s" % ESCAPES[character])
    if code < 32 or code > 126 or character in "\"'/<>&":
        utf16 = character.encode("utf-16-be", "surrogatepass")
        codes = [utf16[at : at + 2].hex().encode() for at in range(0, len(utf16), 2)]
        forms.append(b"".join(rb"\\+u(?i:%s)" % code for code in codes))
    if code < 32 or 126 < code < 256:
        forms.append(rb"\\+x(?i:%02x)" % code)
    elif code > 0xFFFF:
        forms.append(rb"\\+U(?i:%08x)" % code)
    escaped = rb"\\*" if character.isascii() else b""
    forms.append(escaped + b"".join(rb"\x%02x" % byte for byte in content))
    return b"(?:%s)" % b"|".join(forms)


def _is_plain(character: str) -> bool:
    """Return True if nothing encodes it by itself."""
    return character.isascii() and character.isalnum()


# --- the table -----------------------------------------------------------------------------------


def _table(values: Iterable[str]) -> dict[bytes, list[bytes]]:
    """All forms of all pieces of these values, by their beginnings; the longest first."""
    table: dict[bytes, list[bytes]] = {}
    forms = {form for value in values for form in _usual_forms(value)}
    for form in sorted(forms, key=len, reverse=True):
        table.setdefault(form[:HEAD_BYTES], []).append(form)
    return table


def _usual_forms(value: str) -> Iterator[bytes]:
    for piece in _pieces(value):
        content = _encoded(piece)
        quoted = json.dumps(piece), AS_JSON.encode(piece), repr(piece)
        in_urls = quote(content), quote(content, safe=""), quote_plus(content)
        digits = content.hex()
        yield content
        yield from (_encoded(text[1:-1]) for text in quoted)
        yield from (text.encode() for text in (*in_urls, digits, digits.upper()))
    for before in range(3):
        yield from _base64_lines(_encoded(value), before=before)


def _base64_lines(content: bytes, *, before: int) -> Iterator[bytes]:
    """As `_base64`, without line ends: the lines of an encoder that breaks them, in both
    alphabets."""
    encoded = base64.b64encode(bytes(before) + content)
    first, end = (8 * before + 5) // 6, 8 * (before + len(content)) // 6
    for at in range(0, end, BASE64_LINE):
        # a last line of few characters would be found in too much that is none
        line = encoded[max(first, min(at, end - HEAD_BYTES)) : min(at + BASE64_LINE, end)]
        yield line
        yield line.translate(bytes.maketrans(b"+/", b"-_"))


def _found(table: dict[bytes, list[bytes]], content: bytes) -> Iterator[tuple[int, int]]:
    """Find all places of the forms in the bytes, in order."""
    for at in range(len(content) - HEAD_BYTES + 1):
        for form in table.get(content[at : at + HEAD_BYTES], ()):
            if content.startswith(form, at):
                yield at, at + len(form)


def _first_and_longest(span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    return start, -end


def _apart(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Leave out what begins within another one."""
    at = 0
    for start, end in spans:
        if start >= at:
            yield start, end
            at = end
