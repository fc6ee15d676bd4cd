"""Policies as core asks them: what fills `core.admission`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from orchestrator.core.admission import Admission
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.policies import admitting, book, waking


class Policies:
    """The policies in force."""

    def concern(self, executions: Sequence[Execution]) -> bool:
        if not executions:
            return False
        known = book.current()
        return not known.is_empty and any(map(known.may_concern, executions))

    def narrow(self, rows: ExecutionQuerySet) -> ExecutionQuerySet:
        return rows.filter(book.current().condition)

    def ask(self, executions: Sequence[Execution], *, now: datetime) -> Admission:
        return admitting.ask(executions, now=now)

    def ended(self, execution_ids: Collection[UUID], *, now: datetime) -> int:
        return 0 if book.current().is_empty else waking.ended(execution_ids, now=now)
