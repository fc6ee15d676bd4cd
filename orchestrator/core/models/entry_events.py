"""The history of DLQ entries: which were opened and closed, in an order that no clock decides."""

from __future__ import annotations

from django.db import models

from orchestrator.core.models.dead_letters import DLQEntry


class DLQEntryEvent(models.Model):
    """One entry was opened, or closed. Written with it, never changed.

    The times are those of the entry, and who has done it. The ids rise, so that others can follow
    what is opened and closed: see `automation.following`.
    """

    entry = models.ForeignKey(
        DLQEntry, on_delete=models.CASCADE, related_name="history", db_index=False
    )
    entry_id: int
    state = models.CharField(max_length=20, choices=DLQEntry.Resolution.choices)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint("entry", "state", name="dlq_entry_has_each_state_once")
        ]

    def __str__(self) -> str:
        return f"{self.entry_id} {self.state}"
