"""Packs and actions: installed by command, shown here; an action can be disabled and enabled."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from orchestrator.core import clock, executions, words
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section, go_to
from orchestrator.core.authority import Principal
from orchestrator.core.executions import NewExecution
from orchestrator.core.executions.checking import LONGEST_TEXTS
from orchestrator.core.json_field import JSONField
from orchestrator.core.models import Action, Pack, Release
from orchestrator.core.redaction import defaults_to_fill_in
from orchestrator.core.shown import actions as shown
from orchestrator.core.shown import packs as packs_shown

MOST_RELEASES = 50


class RunForm(BaseDialogForm):
    """A request for an execution: its parameters, and the most wanted of its options."""

    parameters = JSONField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "autofocus": "", "class": "m-code"}),
        help_text="A JSON object.",
    )
    correlation_id = forms.CharField(
        required=False,
        max_length=LONGEST_TEXTS["correlation_id"],
        widget=UnfoldAdminTextInputWidget,
        help_text="To find related executions; may be left out.",
    )
    token = forms.CharField(max_length=36, widget=forms.HiddenInput, initial=uuid4)

    def __init__(self, request: HttpRequest, object_id: Any = None, **values: Any) -> None:
        super().__init__(request, object_id, **values)
        obj = Action.objects.filter(pk=object_id).first()
        if obj is not None:
            self.fields["parameters"].initial = _example(obj)

    def wanted(self, obj: Action) -> NewExecution:
        """The request. The token makes one execution of a form that is sent twice."""
        return NewExecution(
            action_ref=obj.ref,
            parameters={} if (given := self.cleaned_data["parameters"]) is None else given,
            correlation_id=self.cleaned_data["correlation_id"] or None,
            idempotency_key=f"form:{self.cleaned_data['token']}",
        )


def _example(obj: Action) -> dict[str, Any]:
    """The parameters that its schema requires, and those with a default that has no secret, to be
    filled in."""
    schema = obj.parameters_schema
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    required = schema.get("required", ()) if properties else ()
    defaults = defaults_to_fill_in(schema)
    return {name: defaults.get(name) for name in properties if name in required or name in defaults}


@admin.register(Pack)
class PackAdmin(ReadOnlyAdmin):
    view_permission = "actions.read"
    list_display = ("name", "version", "state", "action_count", "description", "installed")
    search_fields = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pack]:
        queryset: QuerySet[Pack] = super().get_queryset(request)
        return queryset.annotate(action_total=Count("actions"))

    @display(description="")
    def state(self, pack: Pack) -> SafeString:
        if pack.removed_at is not None:
            return render.badge("removed")
        if pack.draining_since is not None:
            return render.badge("being removed", "warning")
        return render.badge("installed" if pack.release_id else "linked", "success")

    @display(description="Actions")
    def action_count(self, pack: Pack) -> int:
        return pack.action_total  # type: ignore[attr-defined, no-any-return]

    @display(description="Installed")
    def installed(self, pack: Pack) -> SafeString | None:
        return render.moment(pack.installed_at)

    def sections(self, obj: Pack, now: datetime, *, seen_by: Principal) -> list[Section]:
        rows = [
            (
                render.link_to(each),
                each.runtime,
                _enabled_badge(each),
                each.description,
            )
            for each in obj.actions.all()
        ]
        facts = [
            ("Pack", obj.name),
            ("Version", obj.version),
            ("Description", obj.description),
            ("Installed", render.moment(obj.installed_at)),
            ("From", render.mono(obj.path)),
            ("Release", _release(obj)),
        ]
        if obj.draining_since:
            facts.append(("Being removed", render.moment(obj.draining_since)))
        if obj.removed_at:
            facts.append(("Removed", render.moment(obj.removed_at)))
        headers = ["Action", "Runtime", "", "Description"]
        releases = [_row_of(each) for each in obj.releases.select_related("pack")[:MOST_RELEASES]]
        of_releases = ["Release", "Version", "", "Installed", "By"]
        return [
            Section(facts=facts, kind="warning" if obj.draining_since else ""),
            Section(title="Actions", body=render.table(headers, rows) if rows else "none"),
            Section(
                title="Releases",
                body=render.table(of_releases, releases) if releases else "none: it is linked",
            ),
        ]


@admin.register(Action)
class ActionAdmin(ReadOnlyAdmin):
    view_permission = "actions.read"
    list_display = (
        "ref",
        "runtime",
        "enabled",
        "dangerous",
        "again",
        "time_limit",
        "on_no_worker",
        "description",
    )
    list_filter = (("pack", admin.RelatedOnlyFieldListFilter), "runtime", "enabled", "dangerous")
    list_filter_submit = False
    list_select_related = ("pack",)
    search_fields = ("ref", "description")
    actions_detail = ("run", "disable", "enable")

    @display(description="If its outcome is unknown")
    def again(self, obj: Action) -> str:
        return "runs again" if obj.idempotent else "is not run again"

    @display(description="Time limit")
    def time_limit(self, obj: Action) -> str:
        return _time_limit(obj)

    def sections(self, obj: Action, now: datetime, *, seen_by: Principal) -> list[Section]:
        home = reverse("admin:orchestrator_execution_changelist")
        return [
            Section(
                facts=[
                    ("Action", render.mono(obj.ref)),
                    ("May be run", _enabled_badge(obj)),
                    ("Needs", _needed(obj)),
                    ("Description", obj.description),
                    ("Pack", render.link_to(obj.pack)),
                    ("Updated", render.moment(obj.updated_at)),
                    ("Executions", render.link(f"{home}?action={obj.ref}", "show them")),
                ],
                kind="success" if obj.enabled else "warning",
            ),
            Section(title="Parameters (JSON Schema)", body=_json(shown.parameters_schema(obj))),
            Section(title="How it runs", facts=_running(obj, seen_by), wide=False),
            Section(title="When it fails", facts=_failing(obj), wide=False),
        ]

    # --- running, disabling and enabling

    def has_run_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "executions.run", object_id)

    @dialogs.button(
        "Run",
        icon="play_arrow",
        permission="run",
        question="Run this action?",
        explanation="An execution is requested with these parameters, which its schema checks.",
        submit="Run",
        form=RunForm,
        variant=ActionVariant.PRIMARY,
    )
    def run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        obj: Any = self.get_object(request, object_id)
        if obj is None:
            return dialogs.gone(request, home="admin:orchestrator_action_changelist")
        execution = executions.request(
            form.wanted(obj),
            requested_by=dialogs.actor(request),
            principal=self.principal(request),
            now=clock.now(),
        )
        self.log_change(request, obj, f"Run: {execution.pk}")
        messages.success(request, "The execution was accepted.")
        return go_to(request, reverse("admin:orchestrator_execution_change", args=[execution.pk]))

    def has_toggle_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "packs.install", object_id)

    def buttons(self, obj: Action) -> Collection[str]:
        return {"run", "disable"} if obj.enabled else {"enable"}

    @action(
        description="Disable",
        icon="block",
        variant=ActionVariant.WARNING,
        permissions=["toggle"],
        dialog={
            "title": "Disable this action?",
            "description": "New requests for it are refused. Accepted executions continue.",
            "form_submit_text": "Disable",
        },
    )
    def disable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._set_enabled(request, object_id, enabled=False)

    @action(
        description="Enable",
        icon="check_circle",
        variant=ActionVariant.SUCCESS,
        permissions=["toggle"],
        dialog={
            "title": "Enable this action?",
            "description": "It can be requested again.",
            "form_submit_text": "Enable",
        },
    )
    def enable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._set_enabled(request, object_id, enabled=True)

    def _set_enabled(self, request: HttpRequest, object_id: str, *, enabled: bool) -> HttpResponse:
        obj = self.get_object(request, object_id)
        word = "enabled" if enabled else "disabled"
        if obj is None:
            messages.error(request, f"There is no action {object_id}.")
            return go_to(request, reverse("admin:orchestrator_action_changelist"))
        changed = Action.objects.filter(pk=obj.pk, enabled=not enabled).update(
            enabled=enabled, enabled_override=enabled, updated_at=clock.now()
        )
        if changed:
            self.log_change(request, obj, f"{word.capitalize()}.")
        messages.success(request, f"{obj.ref} is {word}.")
        return go_to(request, reverse("admin:orchestrator_action_change", args=[obj.pk]))


def _release(obj: Pack) -> SafeString | str:
    if obj.release is None:
        return "none: workers read its code from the folder"
    return render.mono(obj.release.digest)


def _row_of(release: Release) -> tuple[Any, ...]:
    state = packs_shown.state(release)
    badge = render.badge(state, "success" if state == packs_shown.INSTALLED else "")
    return (
        render.mono(release.short),
        release.version,
        badge,
        render.moment(release.installed_at),
        release.installed_by,
    )


def _enabled_badge(obj: Action) -> SafeString:
    return render.badge("enabled", "success") if obj.enabled else render.badge("disabled")


def _needed(obj: Action) -> SafeString:
    run = render.code("executions.run")
    if not obj.dangerous:
        return run
    return format_html("{} and {}", run, render.code("actions.run_any_command"))


def _time_limit(obj: Action) -> str:
    return words.span(obj.timeout_seconds) if obj.timeout_seconds else "default"


def _running(obj: Action, seen_by: Principal) -> list[tuple[str, Any]]:
    options = shown.options(obj, seen_by=seen_by)
    wait = words.span(obj.queue_ttl_ms / 1000) if obj.queue_ttl_ms else "the queue's"
    if obj.scheduled_timeout_seconds:
        wait = f"{wait}, at most {words.span(obj.scheduled_timeout_seconds)}"
    return [
        ("Runtime", obj.runtime),
        ("Workers with", words.labels(obj.worker_selector) or "any labels"),
        ("Entry point", _json(obj.entry_point)),
        ("Options", _json(options) if options else "none"),
        ("Isolation", obj.isolation),
        ("Limits", _json(obj.limits) if obj.limits else "the installation's"),
        ("Time limit", _time_limit(obj)),
        ("Longest wait in a queue", wait),
    ]


def _failing(obj: Action) -> list[tuple[str, Any]]:
    again = "yes, even if the outcome is unknown" if obj.idempotent else "only if it never started"
    without_worker = {
        "fail": "fails immediately",
        "wait": "waits for one",
    }[obj.on_no_worker]
    return [
        ("Safe to run again", again),
        ("Without a worker", without_worker),
        ("Retry policy", _json(obj.retry_policy) if obj.retry_policy else "none: not retried"),
    ]


def _json(value: Any) -> SafeString:
    return format_html("{}", render.pretty_json(value))
