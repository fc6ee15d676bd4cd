"""What a user types for a row: a name, an id, or the beginning of one."""

from __future__ import annotations

import base64
import binascii
import difflib
import re
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.errors import MusterError
from orchestrator.executions import UnknownExecution
from orchestrator.fleet import UnknownWorker
from orchestrator.investigations import UnknownEntry
from orchestrator.models import DLQEntry, Execution, Step, Task, Worker
from orchestrator.workflows import UnknownStep, UnknownTask

HEX = re.compile(r"[0-9a-f]{1,32}")
ID_MAX = 2**63 - 1


class AmbiguousPrefix(MusterError):
    """Several ids begin like this."""


class InvalidCursor(MusterError):
    """Not a cursor of this listing; take the one that the page before ended with."""


def execution_id(text: str) -> UUID:
    """The id of the execution that this is, or begins.

    Raises UnknownExecution and AmbiguousPrefix.
    """
    return _beginning_with(text, Execution.objects.values_list("pk"), "pk", UnknownExecution)


def task_id(text: str) -> UUID:
    """The id of the task that this is, or begins. Raises UnknownTask and AmbiguousPrefix."""
    return _beginning_with(text, Task.objects.values_list("pk"), "pk", UnknownTask)


def dlq_entry(text: str) -> UUID:
    """The id of the DLQ entry that this is, or begins. Raises UnknownEntry and AmbiguousPrefix."""
    rows = DLQEntry.objects.values_list("dlq_entry_uuid")
    return _beginning_with(text, rows, "dlq_entry_uuid", UnknownEntry)


def step(task: UUID, text: str) -> Step:
    """The step of this name in the task, or else of this id or beginning of one.

    Raises UnknownStep and AmbiguousPrefix.
    """
    rows = Step.objects.filter(task_id=task).select_related("task__template")
    if (found := rows.filter(name=text).first()) is not None:
        return found
    if not HEX.fullmatch(text.strip().lower().replace("-", "")):
        names = list(rows.order_by("pk").values_list("name", flat=True)[:2_000])
        near = difflib.get_close_matches(text, names, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise UnknownStep(f"No step of task {task} is called {text!r}{hint}")
    return rows.get(pk=_beginning_with(text, rows.values_list("pk"), "pk", UnknownStep))


def _beginning_with(
    text: str, rows: QuerySet[Any, tuple[UUID]], field: str, unknown: type[MusterError]
) -> UUID:
    noun = rows.model._meta.verbose_name
    digits = text.strip().lower().replace("-", "")
    if not HEX.fullmatch(digits):
        raise unknown(f"{text!r} is no id: expected a UUID, or the beginning of one")
    between = (UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")))
    found = list(rows.filter(**{f"{field}__range": between}).order_by()[:2])
    if not found:
        raise unknown(f"No {noun} has an id that begins with {text}")
    if len(found) > 1:
        raise AmbiguousPrefix(f"More than one {noun} has an id that begins with {text}")
    return found[0][0]


def worker(text: str) -> Worker:
    """The worker of this name, or else of this id. Raises UnknownWorker."""
    found = Worker.objects.filter(name=text).first()
    if found is None and text.isascii() and text.isdigit() and int(text) <= ID_MAX:
        found = Worker.objects.filter(pk=int(text)).first()
    if found is None:
        raise UnknownWorker(f"No worker has the name or id {text!r}; see: manage.py workers list")
    return found


def write_cursor(key: object) -> str:
    return base64.urlsafe_b64encode(str(key).encode()).rstrip(b"=").decode()


def read_cursor(text: str) -> str:
    """The key that a cursor holds. Raises InvalidCursor."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        raise InvalidCursor from None


def uuid_of_cursor(text: str) -> UUID:
    """The id that a cursor holds. Raises InvalidCursor."""
    try:
        return UUID(read_cursor(text))
    except ValueError:
        raise InvalidCursor from None
