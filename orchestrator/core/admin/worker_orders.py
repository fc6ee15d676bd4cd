"""Operators' orders to workers in the admin, with a reason that is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget

from orchestrator.core import clock, executions, fleet
from orchestrator.core.admin import dialogs, selected
from orchestrator.core.admin.read_only import ReadOnlyAdmin
from orchestrator.core.admin.selected import Outcome
from orchestrator.core.models import Worker

Verb = Callable[..., Worker]


class OrderForm(BaseDialogForm):
    reason = forms.CharField(
        max_length=200,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": ""}),
        help_text="Stored with your name and the time.",
    )


class WorkerOrders(ReadOnlyAdmin):
    """Cordon, uncordon, drain and retire, on a worker's page; all but the last for a selection."""

    view_permission = "workers.read"

    actions = ("cordon_selected", "uncordon_selected", "drain_selected")
    actions_detail = ("cordon", "uncordon", "drain", "retire")

    def has_order_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "workers.order", object_id)

    def has_retire_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "workers.retire", object_id)

    def buttons(self, obj: Worker) -> Collection[str]:
        useful = {
            "cordon": not obj.cordoned,
            "uncordon": obj.cordoned,
            "drain": obj.is_up and obj.status != Worker.Status.DRAINING,
            "retire": not obj.is_up and obj.retired_at is None,
        }
        return {name for name, is_useful in useful.items() if is_useful}

    @dialogs.button(
        "Cordon",
        icon="block",
        permission="order",
        question="Give it no more work?",
        explanation="It continues its work, and still gets executions that are pinned to it.",
        submit="Cordon",
        form=OrderForm,
        variant=ActionVariant.WARNING,
    )
    def cordon(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order_one(request, form, object_id, fleet.cordon, "Cordoned")

    @dialogs.button(
        "Uncordon",
        icon="check_circle",
        permission="order",
        question="Give it work again?",
        explanation="After a drain it gets work once it has started again.",
        submit="Uncordon",
        form=OrderForm,
        variant=ActionVariant.SUCCESS,
    )
    def uncordon(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order_one(request, form, object_id, fleet.uncordon, "Uncordoned")

    @dialogs.button(
        "Drain",
        icon="logout",
        permission="order",
        question="Let it finish and exit?",
        explanation=(
            "It is cordoned, finishes its running executions, and exits. Executions that wait "
            "for it move to other workers now. After a restart it gets no work until it is "
            "uncordoned."
        ),
        submit="Drain",
        form=OrderForm,
        variant=ActionVariant.WARNING,
    )
    def drain(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order_one(request, form, object_id, executions.drain_worker, "Draining")

    @dialogs.button(
        "Retire",
        icon="delete",
        permission="retire",
        question="Remove its queues?",
        explanation=(
            "For a worker that will not come back. If it registers again, it gets new queues."
        ),
        submit="Retire",
        form=OrderForm,
        variant=ActionVariant.DANGER,
    )
    def retire(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._order_one(request, form, object_id, fleet.retire, "Retired")

    @selected.action(
        "Cordon selected workers …",
        permission="order",
        needs="workers.order",
        question="Give these workers no more work?",
        explanation="They continue their work, and still get executions that are pinned to them.",
        submit="Cordon",
        done="Cordoned",
        form=OrderForm,
    )
    def cordon_selected(self, request: HttpRequest, form: Any, rows: list[Worker]) -> Outcome:
        return self._order_each(request, form, rows, fleet.cordon, "Cordoned")

    @selected.action(
        "Uncordon selected workers …",
        permission="order",
        needs="workers.order",
        question="Give these workers work again?",
        explanation="After a drain they get work once they have started again.",
        submit="Uncordon",
        done="Uncordoned",
        form=OrderForm,
    )
    def uncordon_selected(self, request: HttpRequest, form: Any, rows: list[Worker]) -> Outcome:
        return self._order_each(request, form, rows, fleet.uncordon, "Uncordoned")

    @selected.action(
        "Drain selected workers …",
        permission="order",
        needs="workers.order",
        question="Let these workers finish and exit?",
        explanation=(
            "They are cordoned, finish their running executions, and exit. Executions that wait "
            "for them move to other workers now."
        ),
        submit="Drain",
        done="Draining",
        form=OrderForm,
    )
    def drain_selected(self, request: HttpRequest, form: Any, rows: list[Worker]) -> Outcome:
        return self._order_each(request, form, rows, executions.drain_worker, "Draining")

    def _order_one(
        self, request: HttpRequest, form: Any, object_id: str, verb: Verb, done: str
    ) -> HttpResponse:
        worker = self.get_object(request, object_id)
        reason = form.cleaned_data["reason"]
        return dialogs.do(
            request,
            worker,
            lambda: self._order(request, worker, verb, done, reason=reason),
            f"{done}: {worker}.",
            home="admin:orchestrator_worker_changelist",
        )

    def _order_each(
        self, request: HttpRequest, form: Any, rows: list[Worker], verb: Verb, done: str
    ) -> Outcome:
        reason: str = form.cleaned_data["reason"]

        def order(worker: Worker) -> None:
            self._order(request, worker, verb, done, reason=reason)

        return selected.do_each(rows, order)

    def _order(
        self, request: HttpRequest, worker: Worker, verb: Verb, done: str, *, reason: str
    ) -> None:
        actor = dialogs.actor(request)
        verb(worker_id=worker.pk, actor=actor, reason=reason, now=clock.now())
        self.log_change(request, worker, f"{done}: {reason}")
