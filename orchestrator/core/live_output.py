"""Output of executions while they run: written by workers, read by whoever follows.

A row of `OutputChunk` is what one stream of one attempt brought in about a second. Offsets count
the bytes of a stream, those included that were dropped, so a reader sees a gap by itself. What ran
too briefly for a chunk is read from its result, where commands have their output too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Q

from orchestrator.core.models import Execution, OutputChunk
from orchestrator.core.models.output import STREAMS, OutputChunkQuerySet

KEPT_BYTES = 65_536
"""The newest of each stream that stay readable while it runs."""

CHUNK_BYTES = 32_768
"""The most in one chunk."""

READ_BYTES, READ_CHUNKS = 65_536, 200
"""The most in one part, and the most chunks that are read for it."""

LONGEST_CHARACTER = 4
"""Bytes, in UTF-8."""


class Piece(NamedTuple):
    """A chunk to be written."""

    execution_id: UUID
    attempt: int
    stream: str
    offset: int
    content: bytes


class Before(NamedTuple):
    """The beginning of a stream that is not kept any more."""

    execution_id: UUID
    attempt: int
    stream: str
    offset: int


@dataclass(frozen=True)
class Part:
    """Something that a stream brought, without a gap inside."""

    attempt: int
    stream: str
    offset: int
    """The place in its stream at which it begins."""
    dropped_bytes: int
    """The number of bytes that are missing before it, after the place that was asked for."""
    content: bytes

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.content)

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


# --- writing -------------------------------------------------------------------------------------


def write(pieces: Iterable[Piece], *, now: datetime) -> None:
    """Store pieces. Safe to repeat: each is stored once."""
    rows = [OutputChunk(**piece._asdict(), written_at=now) for piece in pieces]
    OutputChunk.objects.bulk_create(rows, ignore_conflicts=True)


def forget(olds: Collection[Before]) -> None:
    """Remove the chunks that begin before these places of their streams."""
    if not olds:
        return
    which = Q()
    for old in olds:
        which |= Q(
            execution_id=old.execution_id,
            attempt=old.attempt,
            stream=old.stream,
            offset__lt=old.offset,
        )
    rows = OutputChunk.objects.filter(which)
    rows._raw_delete(rows.db)


# --- reading -------------------------------------------------------------------------------------


def read(execution: Execution, *, attempt: int, stream: str, offset: int) -> Part:
    """Read on from a place; the part is empty if there is nothing yet. After the end of the
    attempt, an empty part says that all was read.

    `execution` was read before, so that an end that it shows is later than all of its output.
    """
    is_over = execution.is_terminal or attempt < execution.attempt
    known = OutputChunk.objects.of(execution.pk, attempt)
    chunks = known.filter(stream=stream).from_offset(offset)
    first, content, has_gap = _joined(chunks[:READ_CHUNKS], offset)
    has_result = execution.is_terminal and attempt == execution.attempt
    if not content and has_result and not known.exists():
        content = _of_result(execution, stream)[offset:]
    content = content[:READ_BYTES]
    # the rest of a character before a gap will not come
    content = _whole(content, is_over=is_over or has_gap)
    return Part(attempt, stream, first, max(first - offset, 0), content)


def newest(execution: Execution, *, stream: str, most_bytes: int) -> Part | None:
    """The end of what its latest attempt has written by now, up to the last gap; None if nothing is
    kept."""
    chunks = OutputChunk.objects.of(execution.pk, execution.attempt).filter(stream=stream)
    end, content = 0, b""
    for chunk in _newest_first(chunks):
        if content and (chunk.end < end - len(content) or len(content) >= most_bytes):
            break
        end, content = end or chunk.end, bytes(chunk.content) + content
    if not content:
        return None
    content = content[-most_bytes:]
    begin = end - len(content)
    whole = _whole(content, is_over=execution.is_terminal)
    return Part(execution.attempt, stream, begin, 0, whole)


def of_result(execution: Execution, *, stream: str) -> Part:
    """The part of a stream that its result has: the beginning of it, if the execution has ended."""
    content = _of_result(execution, stream) if execution.is_terminal else b""
    return Part(execution.attempt, stream, 0, 0, _whole(content[:READ_BYTES], is_over=True))


def _newest_first(chunks: OutputChunkQuerySet) -> Iterator[OutputChunk]:
    """The chunks of a stream from its end. The first statement reads what most need."""
    chunks = chunks.order_by("-offset")
    rows = list(chunks[:READ_CHUNKS])
    yield from rows
    while len(rows) == READ_CHUNKS:
        rows = list(chunks.filter(offset__lt=rows[-1].offset)[:READ_CHUNKS])
        yield from rows


def _joined(chunks: Iterable[OutputChunk], offset: int) -> tuple[int, bytes, bool]:
    """The place where these chunks go on from `offset`, what they have up to the next gap, and
    whether there is one."""
    first, content = offset, b""
    for chunk in chunks:
        if chunk.end <= offset:
            continue
        if not content:
            first = max(offset, chunk.offset)
            content = bytes(chunk.content)[first - chunk.offset :]
        elif chunk.offset == first + len(content):
            content += bytes(chunk.content)
        else:
            return first, content, True
    return first, content, False


def _of_result(execution: Execution, stream: str) -> bytes:
    """The bytes of a stream that its result has: the beginning of it."""
    result: Any = execution.result
    text = result.get(stream) if isinstance(result, dict) else None
    return text.encode("utf-8", "replace") if isinstance(text, str) else b""


def _whole(content: bytes, *, is_over: bool) -> bytes:
    """The content without a last character of which only a part has come."""
    for size in range(1, min(LONGEST_CHARACTER, len(content) + 1)):
        byte = content[-size]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            expected = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            cut = content[:-size]
            return cut if expected > size and (cut or not is_over) else content
    return content


# --- following -----------------------------------------------------------------------------------


class Follower:
    """Reads what is new of the output of one execution, attempt after attempt, until its end."""

    def __init__(
        self,
        execution_id: UUID,
        *,
        attempt: int | None = None,
        streams: Collection[str] = STREAMS,
        offsets: Collection[int] = (),
    ) -> None:
        """`attempt`: that one only, or all from the latest on. `offsets`: by stream, where the
        reader is."""
        self.execution_id = execution_id
        self.only = attempt
        self.attempt = attempt or 0
        self.streams = streams
        self.offsets = dict.fromkeys(STREAMS, 0) | dict(zip(STREAMS, offsets, strict=False))
        self.execution: Execution | None = None
        """As read last."""
        self.is_over = False
        """True if all was read, and nothing will come."""

    @property
    def place(self) -> str:
        """The place where the reader is, as a text: `resume` goes on from there."""
        return ":".join(map(str, (self.attempt, *self.offsets.values())))

    def resume(self, place: str) -> bool:
        """Go on from a `place`; returns False if the text is none."""
        numbers = place.split(":")
        if len(numbers) != 1 + len(STREAMS) or not all(_is_number(each) for each in numbers):
            return False
        self.attempt, *offsets = map(int, numbers)
        self.offsets = dict(zip(STREAMS, offsets, strict=True))
        return True

    def parts(self) -> Iterator[Part]:
        """Read what came since the last call."""
        rows = Execution.objects.defer("parameters", "result").select_related("worker")
        self.execution = execution = rows.filter(pk=self.execution_id).first()
        if execution is None:  # it was removed
            self.is_over = True
            return
        self.attempt = self.attempt or execution.attempt
        while self.attempt:
            yield from self._parts_of_attempt(execution)
            if self.only or self.attempt >= execution.attempt:
                break
            self.attempt, self.offsets = self.attempt + 1, dict.fromkeys(STREAMS, 0)
        self.is_over = execution.is_terminal or bool(self.only and self.only < execution.attempt)

    def _parts_of_attempt(self, execution: Execution) -> Iterator[Part]:
        for stream in self.streams:
            while True:
                part = read(
                    execution, attempt=self.attempt, stream=stream, offset=self.offsets[stream]
                )
                if not part.content:
                    break
                self.offsets[stream] = part.next_offset
                yield part


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
