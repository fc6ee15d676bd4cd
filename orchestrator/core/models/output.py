"""The newest output of running executions, chunk by chunk."""

from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models import Subquery
from django.db.models.functions import Coalesce

STREAMS = ("stdout", "stderr")


class OutputChunkQuerySet(models.QuerySet["OutputChunk"]):
    def of(self, execution_id: UUID, attempt: int) -> OutputChunkQuerySet:
        return self.filter(execution_id=execution_id, attempt=attempt)

    def from_offset(self, offset: int) -> OutputChunkQuerySet:
        """The chunks of one stream with this place and with what follows it, in order."""
        before = self.filter(offset__lte=offset).order_by("-offset").values("offset")[:1]
        return self.filter(offset__gte=Coalesce(Subquery(before), 0)).order_by("offset")


class OutputChunk(models.Model):
    """The output that an attempt wrote to one of its streams in about a second, without its
    secrets.

    Kept for the newest output only: older chunks of a stream go when it gets too long. Without a
    foreign key, whose check locks the execution.
    """

    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    stream = models.CharField(max_length=6, choices=[(name, name) for name in STREAMS])
    offset = models.BigIntegerField()
    """The number of bytes of the stream before it, those included that were dropped."""
    content = models.BinaryField()
    """Bytes: a chunk may end in the middle of a character."""
    written_at = models.DateTimeField()

    objects = OutputChunkQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["execution_id", "attempt", "stream", "offset"], name="output_chunk_is_once"
            ),
            models.CheckConstraint(
                condition=models.Q(stream__in=STREAMS), name="output_chunk_stream_is_known"
            ),
            models.CheckConstraint(
                condition=models.Q(offset__gte=0), name="output_chunk_offset_is_no_less_than_0"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.stream} of {self.execution_id}, attempt {self.attempt}, from {self.offset}"

    @property
    def end(self) -> int:
        """The offset of what follows it."""
        return self.offset + len(self.content)
