"""Rules whose answers are rejected again and again: somebody is to look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from django.db.models import Q

from orchestrator.automation.models import Enforcement
from orchestrator.automation.states import EnforcementState
from orchestrator.automation.subjects import subject_of_enforcement
from orchestrator.core import investigations
from orchestrator.core.models import DLQEntry

FAILING = 5
"""So many enforcements in a row that were rejected, whatever time they took: a rule that answers
once a day fails, too."""


def investigate(rule_ids: Collection[int], *, now: datetime, actor: str) -> None:
    """Open an investigation for each of these rules whose last answers were all rejections, in the
    transaction of the caller who has just rejected one. A rule has at most one pending one."""
    entries = []
    for rule_id in sorted(set(rule_ids)):
        ended = Enforcement.objects.filter(rule=rule_id, ended_at__isnull=False)
        last = list(ended.select_related("rule").order_by("-pk")[:FAILING])
        is_failing = {row.state for row in last} == {EnforcementState.REJECTED}
        if is_failing and len(last) == FAILING and not _is_looked_into(last[0]):
            entries.append(_entry(last, now, actor))
    investigations.keep(entries)


def _is_looked_into(row: Enforcement) -> bool:
    pending = DLQEntry.objects.pending()
    return pending.filter(Q(fingerprint=_fingerprint(row)) | Q(subject_id=row.pk)).exists()


def _entry(last: Sequence[Enforcement], now: datetime, actor: str) -> DLQEntry:
    """About the newest of these. By its fingerprint the database knows that it is the rule's."""
    newest = last[0]
    subject = subject_of_enforcement(newest)
    of_rule = {"rule": newest.rule.ref, "enforcements": [str(row.pk) for row in last]}
    subject = replace(subject, snapshot={**subject.snapshot, **of_rule})
    messages = " ".join((newest.problem or {}).get("messages", []))
    return DLQEntry(
        **investigations.of_subject(subject),
        dlq_reason=DLQEntry.Reason.RULE_FAILING,
        detail=f"rejected {FAILING} times in a row: {newest.reason}. {messages}".strip()[:2_000],
        dlq_timestamp=now,
        opened_by=actor,
        fingerprint=_fingerprint(newest),
    )


def _fingerprint(row: Enforcement) -> str:
    return f"rule {row.rule_id} failing"
