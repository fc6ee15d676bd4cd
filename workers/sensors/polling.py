"""One life of a poll: it looks again and again, and records what it finds with its cursor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from django.db import connections

from orchestrator.automation import polls
from orchestrator.automation.models import Assignment
from orchestrator.automation.sensors import reports
from orchestrator.automation.sensors.reports import Report
from workers.sensors import launching
from workers.sensors.file_polls import FilePoll, Step
from workers.sensors.http_polls import HttpPoll
from workers.sensors.lives import Failed, Life, Order


class Poll(Protocol):
    """The part of a poll that looks: it knows nothing of leases, events or databases."""

    every_seconds: float

    def look(self, cursor: Mapping[str, Any]) -> Iterator[Step]:
        """Look once; yields what is new, in the order in which it is recorded. Raises Failed."""
        ...


class PollLife(Life):
    """A thread that polls for one trigger."""

    def __init__(self, row: Assignment, *, actor: str) -> None:
        super().__init__(row, actor=actor)
        self.keys: dict[str, str] = {}
        self.poll = self._poll_of(row)

    def live(self) -> None:
        while self.order == Order.GO_ON:
            began_at = time.monotonic()
            for found, cursor in self.poll.look(self.cursor):
                if not self._recorded(found, cursor):
                    return
            self.note_ready()
            self.journal.write()
            connections.close_all()
            self.told.wait(max(self.poll.every_seconds - (time.monotonic() - began_at), 0.01))

    def _recorded(self, found: list[Report], cursor: Mapping[str, Any]) -> bool:
        """Record it, however long the database is away; False if the life ends before."""
        if not found and cursor == self.cursor:
            return self.order == Order.GO_ON
        if fault := reports.cursor_fault(cursor):
            # recorded without it, the same events would come again for ever, or never
            raise Failed(f"it cannot remember what it has seen: the cursor {fault}")
        while self.order == Order.GO_ON:
            if self.record(found, cursor=cursor):
                return True
            self.told.wait(self.next_pause())
        return False

    def _poll_of(self, row: Assignment) -> Poll:
        trigger = row.sensor.trigger
        assert trigger is not None
        if trigger.type.ref == polls.FILE:
            return FilePoll(trigger.pk, trigger.parameters)
        return HttpPoll(trigger.pk, trigger.parameters, self._open_keys, self.journal.note)

    def _open_keys(self, headers: Mapping[str, Any]) -> dict[str, str]:
        """The values of the keys in its headers, which its log does not tell."""
        keys = launching.open_header_keys(headers)
        if keys != self.keys:
            self.keys = keys
            self.journal.mask(list(keys.values()))
        return keys
