"""DLQ entries: what died, where, why, and what it was about."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from unfold.decorators import display
from unfold.views import ChangeList

from orchestrator.admin import render
from orchestrator.admin.listing import id_starts_with
from orchestrator.admin.read_only import AsOfChangeList, ReadOnlyAdmin, Section
from orchestrator.models import DLQEntry, Execution

REASON_KINDS = {
    DLQEntry.Reason.QUEUE_TTL_EXPIRED.value: "warning",
    DLQEntry.Reason.MESSAGE_REJECTED.value: "danger",
    DLQEntry.Reason.MESSAGE_INVALID.value: "danger",
}
FOUND_LIMIT = 1_000


class DLQChangeList(AsOfChangeList):
    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[DLQEntry]:
        queryset: QuerySet[DLQEntry] = super().get_queryset(*args, **kwargs)
        return queryset.defer("raw_body", "snapshot", "headers", "x_death")


@admin.register(DLQEntry)
class DLQEntryAdmin(ReadOnlyAdmin):
    list_display = (
        "number",
        "reason_label",
        "execution_link",
        "attempt",
        "original_queue",
        "detail_start",
        "drained",
    )
    list_filter = ("reason",)
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of an execution id, or a queue"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return DLQChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[DLQEntry], search_term: str
    ) -> tuple[QuerySet[DLQEntry], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if by_id := id_starts_with(term):
            found = Execution.objects.filter(by_id).values("pk")[:FOUND_LIMIT]
            return queryset.filter(execution_id__in=found), False
        return queryset.filter(original_queue=term), False

    @display(description="Entry")
    def number(self, entry: DLQEntry) -> str:
        return f"#{entry.pk}"

    @display(description="Reason", label=REASON_KINDS)
    def reason_label(self, entry: DLQEntry) -> str:
        return entry.reason

    @display(description="Execution")
    def execution_link(self, entry: DLQEntry) -> SafeString | str:
        return _execution(entry, short=True) or "-"

    @display(description="Detail")
    def detail_start(self, entry: DLQEntry) -> str:
        return Truncator(render.printable(entry.detail)).chars(60) or "-"

    @display(description="Drained")
    def drained(self, entry: DLQEntry) -> SafeString | None:
        return render.moment(entry.created_at)

    def sections(self, obj: DLQEntry, now: datetime) -> list[Section]:
        boxes = [
            Section(facts=_what_died(obj, now), kind=REASON_KINDS.get(obj.reason, "")),
            Section(title="Deaths (x-death)", body=x_death_table(obj.x_death)),
            Section(title="Headers", body=render.pretty_json(obj.headers), wide=False),
            Section(
                title="The execution when it was drained",
                body=render.pretty_json(obj.snapshot) if obj.snapshot else "belongs to none",
                wide=False,
            ),
        ]
        if obj.raw_body is not None:
            boxes.append(_body(bytes(obj.raw_body)))
        return boxes


def _what_died(entry: DLQEntry, now: datetime) -> list[tuple[str, Any]]:
    return [
        ("Reason", render.badge(entry.reason, REASON_KINDS.get(entry.reason, ""))),
        ("Detail", render.printable(entry.detail)),
        ("Execution", _execution(entry)),
        ("Attempt", entry.attempt),
        ("Queue", render.printable(entry.original_queue)),
        ("Exchange", render.printable(entry.original_exchange)),
        ("Routing key", render.printable(entry.original_routing_key)),
        (
            "Drained",
            format_html(
                "{} · {}", render.moment(entry.created_at), render.since(entry.created_at, now)
            ),
        ),
        ("Fingerprint", render.mono(entry.fingerprint)),
    ]


def _execution(entry: DLQEntry, *, short: bool = False) -> SafeString | None:
    if entry.execution_id is None:
        return None
    # not `link_to`, which would read the execution of every row
    url = reverse("admin:orchestrator_execution_change", args=[entry.execution_id])
    text = render.short_id if short else render.mono
    return render.link(url, text(entry.execution_id))


def x_death_table(deaths: Any) -> SafeString | str:
    """RabbitMQ's `x-death`, newest death first: one row for each queue and reason."""
    if not deaths:
        return "The letter brought none."
    headers = ["Count", "Reason", "Queue", "Exchange", "Routing keys", "First time"]
    return render.table(headers, _deaths(deaths))


def _deaths(deaths: Any) -> Iterator[tuple[Any, ...]]:
    for death in deaths if isinstance(deaths, list) else [deaths]:
        if not isinstance(death, dict):
            # headers come from outside: anything may be in them
            yield ("?", render.printable(death), "", "", "", "")
            continue
        keys = death.get("routing-keys")
        yield (
            render.printable(death.get("count", "")),
            render.printable(death.get("reason", "")),
            render.printable(death.get("queue", "")),
            render.printable(death.get("exchange", "")),
            render.printable(", ".join(map(str, keys)) if isinstance(keys, list) else keys or ""),
            _time(death.get("time")),
        )


def _time(value: Any) -> Any:
    """AMQP's timestamp: seconds since 1970, or what JSON made of the client's datetime."""
    try:
        if isinstance(value, int):
            return render.moment(datetime.fromtimestamp(value, UTC))
        at = datetime.fromisoformat(value)
        return render.moment(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (OverflowError, OSError, TypeError, ValueError):
        return "" if value is None else render.printable(value)


def _body(body: bytes) -> Section:
    text = body[: render.BODY_LIMIT_BYTES].decode("utf-8", "replace")
    return Section(
        title=f"Body, as received: {len(body):,} bytes",
        body=format_html(
            '<h3 class="m-subtitle">As text</h3>{}<h3 class="m-subtitle">As bytes</h3>{}',
            render.preformatted(text),
            render.hex_dump(body),
        ),
    )
