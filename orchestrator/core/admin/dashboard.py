"""The admin's first page: a few numbers, each a link to its rows, none expensive to compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from orchestrator.core import alarms, authority, clock, frame, maintenance, shared_cache, words
from orchestrator.core.admin import render
from orchestrator.core.admin.listing import COUNT_LIMIT
from orchestrator.core.authority import Principal
from orchestrator.core.models import DLQEntry, Execution, Tick, Worker
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.schedule import Plan
from orchestrator.core.states import TERMINAL, ExecutionStatus

ENDED_LIMIT = 100_000
KEPT_SECONDS = 5
"""Counting as many takes a tenth of a second, for each tab of each operator."""

WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(days=1)}
HOUR, DAY = WINDOWS

WIDE_FROM = 17
"""The characters of a name that need two columns."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One number. A zero is left out of the cards, unless it `matters`."""

    name: str
    kind: str = ""
    """Of its badge: see `render.badge`."""
    count: int
    url: str = ""
    note: str = ""
    part: str = ""
    """A second number, in words: a part of the first."""
    part_url: str = ""
    matters: bool = False

    @property
    def label(self) -> SafeString:
        return render.badge(self.name, self.kind)

    @property
    def number(self) -> str:
        return f"{self.count:,}"

    @property
    def is_wide(self) -> bool:
        return len(self.name) >= WIDE_FROM


@dataclass(frozen=True)
class Box:
    """Some numbers, and the names of those that are zero."""

    title: str
    cards: Sequence[Card]
    zeros: str

    @classmethod
    def of(cls, title: str, cards: Sequence[Card]) -> Box:
        shown = [card for card in cards if card.count or card.matters]
        zeros = ", ".join(card.name for card in cards if card not in shown)
        return cls(title, shown, zeros)


def context(request: HttpRequest, base: dict[str, Any]) -> dict[str, Any]:
    """Unfold's DASHBOARD_CALLBACK: add the boxes that the user may see."""
    now = clock.now()
    user = authority.of_request(request)
    boxes: list[tuple[str, list[Card]]] = []
    if authority.may(user, "executions.read"):
        boxes.append(("Open executions", open_executions(now, user)))
        boxes.append(ended_executions(now, user))
    for bring in frame.collect(lambda app: app.overview):
        boxes += bring(now, user)
    if authority.may(user, "workers.read"):
        boxes.append(("Workers", workers(now, user)))
    if authority.may(user, "dlq.read"):
        boxes.append(("Investigations", investigations(now, user)))
    may_see_ticks = authority.may(user, "metrics.read")
    plans = maintenance.plans() if may_see_ticks else {}
    base |= {
        "now": now,
        "alarms": alarms.now_wrong(user, now=now, plans=plans, asking_the_broker=True),
        "boxes": [Box.of(title, cards) for title, cards in boxes],
        "may_see_ticks": may_see_ticks,
        "ticks": last_ticks(plans, now) if may_see_ticks else "",
    }
    return base


def open_executions(now: datetime, user: Principal) -> list[Card]:
    """Count the open executions by status. Exact: the partial index holds only these."""
    visible = Execution.objects.visible_to(user).open()
    counts = dict(visible.order_by().values_list("status").annotate(Count("pk")))
    late = visible.filter(deadline_at__lte=now).count()
    still = [status for status in ExecutionStatus if status not in TERMINAL]
    return [
        *(
            Card(
                name=status,
                kind=words.kind_of(status),
                count=counts.get(status, 0),
                url=_executions_url(status),
            )
            for status in still
        ),
        Card(name="overdue", kind="danger", count=late, note="past their deadline"),
    ]


def ended_executions(now: datetime, user: Principal) -> tuple[str, list[Card]]:
    """Count the executions of the last day that have ended, and of these the ones of the last hour,
    among the newest `ENDED_LIMIT`; the title says so if there are more."""
    counts = shared_cache.kept(
        f"ended for {user.actor}", lambda: _counts(now, user), seconds=KEPT_SECONDS
    )
    title = "Created in the last 24 hours, and ended"
    if counts[DAY] >= ENDED_LIMIT:
        title = f"{title}: of the newest {ENDED_LIMIT:,}"
    return title, [
        Card(
            name=status,
            kind=words.kind_of(status),
            count=counts[f"{DAY}_{status}"],
            url=_executions_url(status, within=DAY),
            part=f"{counts[f'{HOUR}_{status}']:,} last hour",
            part_url=_executions_url(status, within=HOUR),
        )
        for status in ExecutionStatus
        if status in TERMINAL
    ]


def _counts(now: datetime, user: Principal) -> dict[str, int]:
    """Count for all windows in one look."""
    created = {key: created_between(now - window, None) for key, window in WINDOWS.items()}
    numbers = {
        f"{key}_{status}": Count("pk", filter=within & Q(status=status))
        for key, within in created.items()
        for status in TERMINAL
    }
    newest = Execution.objects.visible_to(user).filter(created[DAY]).order_by("-pk")
    looked_at = {key: Count("pk", filter=within) for key, within in created.items()}
    return newest[:ENDED_LIMIT].aggregate(**numbers, **looked_at)


def _executions_url(status: ExecutionStatus, *, within: str = "") -> str:
    url = f"{reverse('admin:orchestrator_execution_changelist')}?status={status}"
    return f"{url}&within={within}" if within else url


def workers(now: datetime, user: Principal) -> list[Card]:
    visible = Worker.objects.visible_to(user)
    counts = dict(visible.order_by().values_list("status").annotate(Count("pk")))
    fresh = visible.eligible(now).count()
    stale = visible.stale(now).count()
    base = reverse("admin:orchestrator_worker_changelist")
    numbers = {
        "fresh": (fresh, "success" if fresh else "danger", "active", "ready for work"),
        "stale": (stale, "danger", "", "silent for too long"),
        "draining": (counts.get("draining", 0), "warning", "draining", "finish their work"),
        "inactive": (counts.get("inactive", 0), "", "inactive", "down"),
    }
    return [
        Card(
            name=name,
            kind=kind,
            count=number,
            url=f"{base}?status__exact={status}" if status else base,
            note=note,
            matters=name == "fresh",
        )
        for name, (number, kind, status, note) in numbers.items()
    ]


def investigations(now: datetime, user: Principal) -> list[Card]:
    """Count what is to be looked into, up to `COUNT_LIMIT`, and what was opened today by reason."""
    visible = DLQEntry.objects.visible_to(user)
    pending = visible.pending().order_by()[:COUNT_LIMIT].count()
    to_look_into = Card(
        name="to look into",
        kind="danger",
        count=pending,
        url=reverse("admin:orchestrator_investigationqueue_changelist"),
        note="or more" if pending >= COUNT_LIMIT else "most urgent first",
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
            name=reason.value,
            kind="warning",
            count=counts[reason.value],
            url=f"{base}?dlq_reason__exact={reason.value}",
            note=f"today, of the newest {COUNT_LIMIT:,}" if capped else "today",
        )
        for reason in DLQEntry.Reason
        if reason.value in counts
    ]


def last_ticks(plans: Mapping[str, Plan], now: datetime) -> SafeString | str:
    """A table of maintenance functions: the last run of each, and whether it is late by its
    plan."""
    rows = []
    for tick in Tick.objects.of_functions().order_by("name"):
        late = tick.name in plans and alarms.is_late(plans[tick.name], tick.ran_at, now)
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
