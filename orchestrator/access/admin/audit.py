"""Events of the audit in the admin: to read, and nothing else."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.utils.safestring import SafeString
from unfold.decorators import display

from orchestrator.access.audit.models import DECISION_KINDS
from orchestrator.access.models import AuditEvent, AuditSeal
from orchestrator.core.admin import render
from orchestrator.core.admin.listing import TimeBetween
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    view_permission = "audit.read"
    list_display = ("happened", "actor", "permission", "about", "decision_label", "why", "address")
    list_filter = ("decision", "actor_kind", ("at", TimeBetween))
    search_fields = ("actor__exact", "permission__exact", "object_id__exact", "request_id__exact")
    search_help_text = "A whole actor, permission, id of an object, or id of a request."

    @display(description="At")
    def happened(self, event: AuditEvent) -> SafeString | None:
        return render.moment(event.at)

    @display(description="About")
    def about(self, event: AuditEvent) -> str:
        return render.printable(event.about) or "-"

    @display(description="Decision", label=DECISION_KINDS)
    def decision_label(self, event: AuditEvent) -> str:
        return event.decision

    @display(description="Reason")
    def why(self, event: AuditEvent) -> str:
        return render.printable(event.reason) or "-"

    def sections(self, obj: AuditEvent, now: datetime, *, seen_by: Principal) -> list[Section]:
        facts: list[tuple[str, Any]] = [
            ("At", render.moment(obj.at)),
            ("By", f"{obj.actor} ({obj.actor_kind} {obj.actor_id})"),
            ("Token", render.mono(f"{obj.token_prefix}…") if obj.token_prefix else "none"),
            ("Permission", obj.permission),
            ("About", render.printable(obj.about)),
            ("Decision", render.badge(obj.decision, DECISION_KINDS[obj.decision])),
            ("Reason", render.printable(obj.reason)),
            ("Request", render.mono(obj.request_id) if obj.request_id else "none"),
            ("Address", obj.address or "none"),
        ]
        seal = AuditSeal.objects.filter(event_id=obj.pk).first()
        place = f"{seal.position}: {seal.hash}" if seal else "not sealed yet"
        return [
            Section(
                facts=[*facts, ("Seal", render.mono(place))], kind=str(DECISION_KINDS[obj.decision])
            )
        ]
