"""The place where the trace of an execution began."""

from __future__ import annotations

from django.db import models


class TraceContext(models.Model):
    """The W3C trace context of an execution: that of the span of its request.

    Only of executions whose trace is sampled, while traces are on. A row of its own, as executions
    are read and written too often to be wider; without a foreign key, whose check locks the
    execution.
    """

    execution_id = models.UUIDField(primary_key=True)
    traceparent = models.CharField(max_length=55)
    tracestate = models.CharField(max_length=512, blank=True)

    def __str__(self) -> str:
        return self.traceparent
