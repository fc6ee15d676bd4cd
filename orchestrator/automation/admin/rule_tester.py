"""The tester of a rule: its answer to a payload or an old event. Nothing is recorded."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from orchestrator.automation import asking
from orchestrator.automation.asking import Answer
from orchestrator.automation.models import Event, Rule
from orchestrator.core import clock
from orchestrator.core.authority import Principal
from orchestrator.core.json_field import JSONField


class TestForm(forms.Form):
    """A payload, or the id of an event."""

    __test__ = False  # it is none of pytest's

    payload = JSONField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "class": "m-code"}),
        help_text="A JSON object, as an event of the rule's trigger would have it.",
    )
    event = forms.UUIDField(
        required=False,
        label="Or the id of an event",
        widget=UnfoldAdminTextInputWidget,
        help_text="Of any trigger: its payload is taken as it is.",
    )

    def __init__(self, *args: Any, rule: Rule, seen_by: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rule, self.seen_by = rule, seen_by
        self.answer: Answer | None = None

    def clean_payload(self) -> Any:
        payload = self.cleaned_data["payload"]
        if payload is not None and not isinstance(payload, dict):
            raise ValidationError("Expected a JSON object.")
        return payload

    def clean_event(self) -> Event | None:
        if (id := self.cleaned_data["event"]) is None:
            return None
        visible = Event.objects.visible_to(self.seen_by).select_related("trigger__type")
        if (event := visible.filter(pk=id).first()) is None:
            raise ValidationError("There is no such event.")
        return event

    def clean(self) -> dict[str, Any]:
        """Ask the rule."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        payload, event = cleaned["payload"], cleaned["event"]
        if payload is not None and event is not None:
            raise ValidationError("Expected a payload or an event, found both.")
        if event is not None:
            self.answer = asking.about_event(self.rule, event, seen_by=self.seen_by)
        else:
            self.answer = asking.about_payload(
                self.rule, payload or {}, seen_by=self.seen_by, now=clock.now()
            )
        return cleaned
