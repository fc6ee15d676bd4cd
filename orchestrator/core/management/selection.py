"""Selection of a row by the text that a user types: a name, an id, or its beginning."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.core import investigations
from orchestrator.core.cursors import ID_MAX
from orchestrator.core.errors import MusterError
from orchestrator.core.executions import UnknownExecution
from orchestrator.core.fleet import UnknownWorker
from orchestrator.core.investigations import UnknownEntry
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.models.fleet import WorkerQuerySet
from orchestrator.core.models.time_ordered import ids_beginning_with
from orchestrator.core.words import did_you_mean

HEX = re.compile(r"[0-9a-f]{1,32}")

NAMED_LIMIT = 5
"""The number of ids that are named if a beginning fits more than one."""

ALIKE_LIMIT = 10_000
"""The most ids with one beginning that are compared with an end: many come in one millisecond."""

NAMES_LIMIT = 2_000
"""The most names that are compared with one that is unknown."""


class AmbiguousPrefix(MusterError):
    """Several ids begin with this text."""


def execution_id(text: str, rows: QuerySet[Execution]) -> UUID:
    """The id of the execution among these whose id is, or begins with, this text.

    Raises UnknownExecution and AmbiguousPrefix.
    """
    return beginning_with(text, rows.values_list("pk"), "pk", UnknownExecution)


def subject_id(kind: str, text: str) -> UUID:
    """The id of the subject of an investigation whose id is, or begins with, this text.

    Raises UnknownSubject and AmbiguousPrefix.
    """
    model = investigations.model_of(investigations.kind_of(kind))
    rows = model._default_manager.values_list("pk")
    return beginning_with(text, rows, "pk", investigations.UnknownSubject)


def dlq_entry(text: str, rows: QuerySet[DLQEntry]) -> UUID:
    """The id of the DLQ entry among these whose id is, or begins with, this text.

    Raises UnknownEntry and AmbiguousPrefix.
    """
    ids = rows.values_list("dlq_entry_uuid")
    return beginning_with(text, ids, "dlq_entry_uuid", UnknownEntry)


def beginning_with(
    text: str, rows: QuerySet[Any, tuple[UUID]], field: str, unknown: type[MusterError]
) -> UUID:
    """The one id of these rows that is, or begins with, this text. A short id of the admin, such as
    `01a20033-10da…ac1d`, also says how it ends.

    Raises `unknown` and AmbiguousPrefix.
    """
    noun = rows.model._meta.verbose_name
    digits, _, end = text.strip().lower().replace("-", "").partition("…")
    if not HEX.fullmatch(digits):
        raise unknown(f"{text!r} is not an id: expected a UUID, or the beginning of one")
    ids = rows.filter(**{f"{field}__range": ids_beginning_with(digits)}).order_by(field)
    looked_at = ids[: ALIKE_LIMIT if end else NAMED_LIMIT + 1]
    matches = [id for (id,) in looked_at if id.hex.endswith(end)]
    if not matches:
        raise unknown(f"No {noun} has an id that begins with {text}")
    if len(matches) > 1:
        named = ", ".join(map(str, matches[:NAMED_LIMIT]))
        more = ", ..." if len(matches) > NAMED_LIMIT else ""
        raise AmbiguousPrefix(
            f"More than one {noun} has an id that begins with {text}: {named}{more}"
        )
    return matches[0]


def worker(text: str, rows: WorkerQuerySet) -> Worker:
    """The worker among these with this name, or else with this id. Raises UnknownWorker."""
    row = rows.filter(name=text).first()
    if row is None and text.isascii() and text.isdigit() and int(text) <= ID_MAX:
        row = rows.filter(pk=int(text)).first()
    if row is None:
        names = rows.known().values_list("name", flat=True)[:NAMES_LIMIT]
        hint = did_you_mean(text, names) or "; see: manage.py workers list"
        raise UnknownWorker(f"No worker has the name or id {text!r}{hint}")
    return row
