"""Output of an execution, while it runs and afterwards: without secrets, for all faces."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from orchestrator.core import live_output
from orchestrator.core.authority import Principal
from orchestrator.core.live_output import Part
from orchestrator.core.models import Execution
from orchestrator.core.models.output import STREAMS
from orchestrator.core.shown import executions
from orchestrator.core.shown.documents import Shown

NEWEST_BYTES = 16_384
"""The number of bytes that a page shows of a stream."""


class OutputPart(Shown):
    """The output that one stream of an attempt brought, from a place on."""

    attempt: int
    stream: str
    offset: int = Field(description="Where `text` begins, in bytes of the stream.")
    next_offset: int = Field(description="Ask from here to read on.")
    dropped_bytes: int = Field(description="Missing between the offset asked for and `offset`.")
    text: str = Field(description="Secrets are `***`, and all of it without `payloads.read`.")


class Output(OutputPart):
    """A part of the output of an execution."""

    execution_id: UUID
    status: str
    is_over: bool = Field(description="True if the attempt has ended, and all of it was read.")


def part(part: Part, *, of: Execution, seen_by: Principal) -> OutputPart:
    """Convert a part."""
    text = executions.without_secrets(part.text, of=of, seen_by=seen_by) if part.content else ""
    return OutputPart(
        attempt=part.attempt,
        stream=part.stream,
        offset=part.offset,
        next_offset=part.next_offset,
        dropped_bytes=part.dropped_bytes,
        text=str(text),
    )


def output(
    execution: Execution, *, attempt: int, stream: str, offset: int, seen_by: Principal
) -> Output:
    """Read the output of an execution from a place on."""
    read = live_output.read(execution, attempt=attempt, stream=stream, offset=offset)
    is_over = execution.is_terminal or attempt < execution.attempt
    return Output(
        **dict(part(read, of=execution, seen_by=seen_by)),
        execution_id=execution.pk,
        status=execution.status,
        is_over=is_over and not read.content,
    )


def newest(execution: Execution, *, seen_by: Principal) -> list[OutputPart]:
    """The end of each stream that the latest attempt has written to."""
    read = [
        live_output.newest(execution, stream=stream, most_bytes=NEWEST_BYTES) for stream in STREAMS
    ]
    return [part(each, of=execution, seen_by=seen_by) for each in read if each is not None]
