"""DLQ entries: what died, where, why, and what it was about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from unfold.dataclasses import ActionDialog
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminTextareaWidget

from orchestrator import clock, investigations
from orchestrator.admin import render
from orchestrator.admin.listing import id_starts_with
from orchestrator.admin.read_only import AsOfChangeList, ReadOnlyAdmin, Section, go_to
from orchestrator.errors import MusterError
from orchestrator.models import DLQEntry, Execution

R = DLQEntry.Reason
REASON_KINDS = {
    R.STALENESS_TIMEOUT.value: "warning",
    R.MAX_RETRIES_EXCEEDED.value: "danger",
    R.DEPENDENCY_CYCLE_DETECTED.value: "danger",
    R.WORKER_UNAVAILABLE.value: "warning",
    R.MANUAL_DLQ.value: "info",
    R.QUEUE_TTL_EXPIRED.value: "warning",
    R.MESSAGE_INVALID.value: "danger",
    R.RETRIES_EXCEEDED.value: "danger",
    R.UNROUTABLE.value: "danger",
}
RESOLUTION_KINDS = {
    DLQEntry.Resolution.PENDING.value: "warning",
    DLQEntry.Resolution.MANUALLY_RESOLVED.value: "success",
    DLQEntry.Resolution.PERMANENTLY_FAILED.value: "danger",
    DLQEntry.Resolution.CANCELLED.value: "",
}
FOUND_LIMIT = 1_000


class NoteForm(BaseDialogForm):
    """What was found out: asked for before an entry is closed."""

    note = forms.CharField(
        max_length=10_000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4, "autofocus": ""}),
        help_text="Kept with your name and the time; notes are never changed.",
    )


def _dialog(title: str, description: str, submit: str) -> ActionDialog:
    return {
        "title": title,
        "description": description,
        "form_class": NoteForm,
        "form_submit_text": submit,
    }


class DLQChangeList(AsOfChangeList):
    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[DLQEntry]:
        queryset: QuerySet[DLQEntry] = super().get_queryset(*args, **kwargs)
        return queryset.without_contents()  # type: ignore[attr-defined, no-any-return]


@admin.register(DLQEntry)
class DLQEntryAdmin(ReadOnlyAdmin):
    list_display = (
        "entry_id",
        "reason_label",
        "resolution_label",
        "subject",
        "original_queue",
        "detail_start",
        "opened",
    )
    list_filter = ("resolution_status", "dlq_reason")
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of the id of an entry or execution, or a queue"
    actions = ("resolve_selected", "fail_selected", "cancel_selected")
    actions_detail = ("resolve", "fail", "cancel", "annotate")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return DLQChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[DLQEntry], search_term: str
    ) -> tuple[QuerySet[DLQEntry], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if by_id := id_starts_with(term):
            executions = Execution.objects.filter(by_id).values("pk")[:FOUND_LIMIT]
            entries = DLQEntry.objects.filter(id_starts_with(term, field="dlq_entry_uuid") or Q())
            ids = entries.values("pk")[:FOUND_LIMIT]
            return queryset.filter(Q(execution_id__in=executions) | Q(pk__in=ids)), False
        return queryset.filter(original_queue=term), False

    # --- columns

    @display(description="Entry")
    def entry_id(self, entry: DLQEntry) -> SafeString:
        return render.short_id(entry.dlq_entry_uuid)

    @display(description="Reason", label=REASON_KINDS)
    def reason_label(self, entry: DLQEntry) -> str:
        return entry.dlq_reason

    @display(description="Resolution", label=RESOLUTION_KINDS)
    def resolution_label(self, entry: DLQEntry) -> str:
        return entry.resolution_status

    @display(description="About")
    def subject(self, entry: DLQEntry) -> SafeString | str:
        return _execution(entry, short=True) or "-"

    @display(description="Detail")
    def detail_start(self, entry: DLQEntry) -> str:
        return Truncator(render.printable(entry.detail)).chars(60) or "-"

    @display(description="Opened")
    def opened(self, entry: DLQEntry) -> SafeString | None:
        return render.moment(entry.dlq_timestamp)

    def sections(self, obj: DLQEntry, now: datetime) -> list[Section]:
        boxes = [Section(facts=_what_happened(obj, now), kind=RESOLUTION_KINDS[_status(obj)])]
        if obj.notes:
            rows = [(n.get("at"), n.get("by"), render.printable(n.get("text"))) for n in obj.notes]
            boxes.append(Section(title="Notes", body=render.table(["At", "By", "Note"], rows)))
        if obj.fingerprint:
            boxes += [
                Section(title="Deaths (x-death)", body=x_death_table(obj.x_death)),
                Section(title="Headers", body=render.pretty_json(obj.headers), wide=False),
            ]
        boxes.append(
            Section(
                title="As it was when the entry was opened",
                body=render.pretty_json(obj.task_snapshot)
                if obj.task_snapshot
                else "belongs to none",
                wide=not obj.fingerprint,
            )
        )
        if obj.metadata:
            boxes.append(Section(title="Metadata", body=render.pretty_json(obj.metadata)))
        if obj.raw_body is not None:
            boxes.append(_body(bytes(obj.raw_body)))
        return boxes

    # --- notes and resolutions

    def has_investigate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_change(request)

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """A closed entry is final, so its page has no buttons."""
        found = self.get_object(request, object_id)
        if found is None or found.is_closed:
            return []
        allowed: list[Any] = super().get_actions_detail(request, object_id)
        return allowed

    @action(
        description="Resolved",
        icon="check_circle",
        variant=ActionVariant.SUCCESS,
        permissions=["investigate"],
        dialog=_dialog(
            "Close as resolved?", "What was wrong is dealt with. Closed is final.", "Close"
        ),
    )
    def resolve(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._close_one(request, form, object_id, DLQEntry.Resolution.MANUALLY_RESOLVED)

    @action(
        description="Failed for good",
        icon="cancel",
        variant=ActionVariant.DANGER,
        permissions=["investigate"],
        dialog=_dialog(
            "Close as permanently failed?",
            "Nothing can be done any more. Closed is final.",
            "Close",
        ),
    )
    def fail(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._close_one(request, form, object_id, DLQEntry.Resolution.PERMANENTLY_FAILED)

    @action(
        description="Not needed",
        icon="do_not_disturb_on",
        permissions=["investigate"],
        dialog=_dialog(
            "Cancel the investigation?", "Nobody needs to look into it. Closed is final.", "Close"
        ),
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._close_one(request, form, object_id, DLQEntry.Resolution.CANCELLED)

    @action(
        description="Add a note",
        icon="edit_note",
        permissions=["investigate"],
        dialog=_dialog("Add a note", "The entry stays pending.", "Add"),
    )
    def annotate(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        note: str = form.cleaned_data["note"]

        def verb(entry: DLQEntry) -> None:
            investigations.annotate(
                entry.dlq_entry_uuid, note=note, now=clock.now(), actor=_actor(request)
            )
            self.log_change(request, entry, "Note added.")

        return self._do_to_one(request, object_id, verb)

    @admin.action(description="Close selected: resolved", permissions=["investigate"])
    def resolve_selected(self, request: HttpRequest, queryset: QuerySet[DLQEntry]) -> None:
        self._close_selected(request, queryset, DLQEntry.Resolution.MANUALLY_RESOLVED)

    @admin.action(description="Close selected: failed for good", permissions=["investigate"])
    def fail_selected(self, request: HttpRequest, queryset: QuerySet[DLQEntry]) -> None:
        self._close_selected(request, queryset, DLQEntry.Resolution.PERMANENTLY_FAILED)

    @admin.action(description="Close selected: not needed", permissions=["investigate"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[DLQEntry]) -> None:
        self._close_selected(request, queryset, DLQEntry.Resolution.CANCELLED)

    def _close_one(
        self, request: HttpRequest, form: Any, object_id: str, resolution: DLQEntry.Resolution
    ) -> HttpResponse:
        note: str = form.cleaned_data["note"]
        return self._do_to_one(
            request, object_id, lambda entry: self._close(request, entry, resolution, note)
        )

    def _do_to_one(
        self, request: HttpRequest, object_id: str, verb: Callable[[DLQEntry], None]
    ) -> HttpResponse:
        entry = self.get_object(request, object_id)
        if entry is None:
            messages.error(request, f"There is no entry {object_id}.")
            return go_to(request, reverse("admin:orchestrator_dlqentry_changelist"))
        try:
            verb(entry)
        except MusterError as error:
            messages.error(request, str(error))
        return go_to(request, reverse("admin:orchestrator_dlqentry_change", args=[entry.pk]))

    def _close_selected(
        self,
        request: HttpRequest,
        queryset: QuerySet[DLQEntry],
        resolution: DLQEntry.Resolution,
    ) -> None:
        closed = 0
        # at most the page that was looked at, whatever the form says
        for entry in queryset[: self.list_per_page]:
            try:
                self._close(request, entry, resolution, "")
            except MusterError as error:
                messages.error(request, str(error))
            else:
                closed += 1
        if closed:
            noun = "entry was" if closed == 1 else "entries were"
            messages.success(request, f"{closed} {noun} closed.")

    def _close(
        self, request: HttpRequest, entry: DLQEntry, resolution: DLQEntry.Resolution, note: str
    ) -> None:
        investigations.close(
            entry.dlq_entry_uuid,
            resolution=resolution,
            note=note,
            now=clock.now(),
            actor=_actor(request),
        )
        self.log_change(request, entry, f"Closed: {resolution}.")


def _actor(request: HttpRequest) -> str:
    return f"user:{request.user.get_username()}"


def _status(entry: DLQEntry) -> str:
    return str(entry.resolution_status)


def _what_happened(entry: DLQEntry, now: datetime) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = [
        ("Entry", render.mono(entry.dlq_entry_uuid)),
        ("Reason", render.badge(entry.dlq_reason, REASON_KINDS.get(entry.dlq_reason, ""))),
        ("Resolution", render.badge(_status(entry), RESOLUTION_KINDS[_status(entry)])),
        ("Detail", render.printable(entry.detail)),
        ("Execution", _execution(entry)),
        ("Attempt", entry.attempt),
        ("It was", entry.original_state),
        ("Opened", _by_and_when(entry.opened_by, entry.dlq_timestamp, now)),
    ]
    if entry.resolved_at:
        facts.append(("Closed", _by_and_when(entry.resolved_by, entry.resolved_at, now)))
    if entry.fingerprint:
        facts += [
            ("Queue", render.printable(entry.original_queue)),
            ("Exchange", render.printable(entry.original_exchange)),
            ("Routing key", render.printable(entry.original_routing_key)),
            ("Fingerprint", render.mono(entry.fingerprint)),
        ]
    return facts


def _by_and_when(who: str, at: datetime, now: datetime) -> SafeString:
    return format_html("{} · {} · {}", render.moment(at), render.since(at, now), who or "?")


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
