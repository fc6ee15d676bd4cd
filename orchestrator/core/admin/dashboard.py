"""The admin's first page: a few numbers, each a link to its rows, none expensive to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from orchestrator.core import authority, clock, maintenance
from orchestrator.core.admin import alarms, render
from orchestrator.core.admin.listing import COUNT_LIMIT, created_between
from orchestrator.core.authority import Principal
from orchestrator.core.models import DLQEntry, Execution, Tick, Worker
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.states import TERMINAL, ExecutionStatus

ENDED_LIMIT = 100_000
WINDOWS = {"1h": ("hour", timedelta(hours=1)), "24h": ("day", timedelta(days=1))}


@dataclass(frozen=True, kw_only=True)
class Card:
    """One number."""

    label: Any
    number: str
    url: str = ""
    note: str = ""
    wide: bool = False


def context(request: HttpRequest, base: dict[str, Any]) -> dict[str, Any]:
    """Unfold's DASHBOARD_CALLBACK: add the boxes that the user may see."""
    now = clock.now()
    user = authority.of_request(request)
    boxes: list[tuple[str, list[Card]]] = []
    if authority.may(user, "executions.read"):
        boxes.append(("Open executions", open_executions(now, user)))
        boxes += [
            (
                f"Created in the last {name}, and ended",
                ended_executions(key, window, now, user),
            )
            for key, (name, window) in WINDOWS.items()
        ]
    if authority.may(user, "workers.read"):
        boxes.append(("Workers", workers(now, user)))
    if authority.may(user, "dlq.read"):
        boxes.append(("Investigations", investigations(now, user)))
    may_see_ticks = authority.may(user, "metrics.read")
    base |= {
        "now": now,
        "alarms": alarms.now_wrong(user, now=now, asking_the_broker=True),
        "boxes": boxes,
        "may_see_ticks": may_see_ticks,
        "ticks": last_ticks(now) if may_see_ticks else "",
    }
    return base


def open_executions(now: datetime, user: Principal) -> list[Card]:
    """Count the open executions by status. Exact: the partial index holds only these."""
    visible = Execution.objects.visible_to(user).open()
    counts = dict(visible.order_by().values_list("status").annotate(Count("pk")))
    late = visible.filter(deadline_at__lte=now).count()
    cards = [_status_card(status, counts) for status in ExecutionStatus if status not in TERMINAL]
    note = "past their deadline"
    return [
        *cards,
        Card(
            label=render.badge("overdue", "danger" if late else ""), number=f"{late:,}", note=note
        ),
    ]


def ended_executions(key: str, window: timedelta, now: datetime, user: Principal) -> list[Card]:
    """Count ended executions, by a range of the primary key, at most the newest `ENDED_LIMIT`."""
    wanted = created_between(now - window, None) & Q(ended_at__isnull=False)
    newest = Execution.objects.order_by("-pk").values_list("pk", flat=True)
    oldest_counted = next(iter(newest[ENDED_LIMIT : ENDED_LIMIT + 1]), None)
    if oldest_counted:
        wanted &= Q(pk__gt=oldest_counted)
    rows = Execution.objects.visible_to(user).filter(wanted).order_by()
    counts = dict(rows.values_list("status").annotate(Count("pk")))
    reached = oldest_counted is not None and oldest_counted > uuid7_floor(now - window)
    note = f"of the newest {ENDED_LIMIT:,}" if reached else ""
    return [
        _status_card(status, counts, within=key, note=note)
        for status in ExecutionStatus
        if status in TERMINAL
    ]


def _status_card(
    status: ExecutionStatus, counts: Mapping[str, int], *, within: str = "", note: str = ""
) -> Card:
    url = f"{reverse('admin:orchestrator_execution_changelist')}?status={status}"
    return Card(
        label=render.state_badge(status),
        number=f"{counts.get(status, 0):,}",
        url=f"{url}&within={within}" if within else url,
        note=note,
    )


def workers(now: datetime, user: Principal) -> list[Card]:
    visible = Worker.objects.visible_to(user)
    counts = dict(visible.order_by().values_list("status").annotate(Count("pk")))
    fresh = visible.eligible(now).count()
    stale = visible.stale(now).count()
    base = reverse("admin:orchestrator_worker_changelist")
    kinds = {"fresh": "success", "stale": "danger", "draining": "warning", "inactive": ""}
    numbers = {
        "fresh": (fresh, "active", "may be given work"),
        "stale": (stale, "", "silent for too long"),
        "draining": (counts.get("draining", 0), "draining", "finish their work"),
        "inactive": (counts.get("inactive", 0), "inactive", "down"),
    }
    return [
        Card(
            label=render.badge(name, kinds[name]),
            number=f"{number:,}",
            url=f"{base}?status__exact={status}" if status else base,
            note=note,
        )
        for name, (number, status, note) in numbers.items()
    ]


def investigations(now: datetime, user: Principal) -> list[Card]:
    """Count what is to be looked into, up to `COUNT_LIMIT`, and what was opened today by reason."""
    visible = DLQEntry.objects.visible_to(user)
    pending = visible.pending().order_by()[:COUNT_LIMIT].count()
    to_look_into = Card(
        label=render.badge("to look into", "danger" if pending else ""),
        number=f"{pending:,}",
        url=reverse("admin:orchestrator_investigationqueue_changelist"),
        note=f"or more than {COUNT_LIMIT:,}" if pending >= COUNT_LIMIT else "the most urgent first",
        wide=True,
    )
    return [to_look_into, *_opened_today(now, user)]


def _opened_today(now: datetime, user: Principal) -> list[Card]:
    """Count entries since midnight, installation time, among the newest `COUNT_LIMIT`; only of
    reasons that there were."""
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    newest = DLQEntry.objects.order_by("-pk").values("pk")[:COUNT_LIMIT]
    rows = (
        DLQEntry.objects.visible_to(user)
        .filter(pk__in=newest, dlq_timestamp__gte=midnight)
        .order_by()
        .values_list("dlq_reason")
        .annotate(Count("pk"))
    )
    counts = dict(rows)
    base = reverse("admin:orchestrator_dlqentry_changelist")
    capped = sum(counts.values()) >= COUNT_LIMIT
    return [
        Card(
            label=render.badge(reason.value, "warning"),
            number=f"{counts[reason.value]:,}",
            url=f"{base}?dlq_reason__exact={reason.value}",
            note=f"today, of the newest {COUNT_LIMIT:,}" if capped else "today",
            wide=True,
        )
        for reason in DLQEntry.Reason
        if reason.value in counts
    ]


def last_ticks(now: datetime) -> SafeString | str:
    """A table of maintenance functions: the last run of each, and whether it is late."""
    rows = []
    for tick in Tick.objects.of_functions().order_by("name"):
        late = tick.name in maintenance.functions() and alarms.is_late(tick.name, tick.ran_at, now)
        rows.append(
            (
                tick.name,
                render.badge("late", "danger") if late else render.badge("on time", "success"),
                render.since(tick.ran_at, now),
                render.moment(tick.ran_at),
            )
        )
    headers = ["Maintenance", "State", "Last ran", "At"]
    return render.table(headers, rows) if rows else ""
