"""The verbs of `manage.py task` that are about steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from orchestrator.core import clock, cursors, relay
from orchestrator.core.management import output
from orchestrator.core.shown.documents import document
from orchestrator.workflows import engine
from orchestrator.workflows.management import selection, task_tables
from orchestrator.workflows.models import Step, Task
from orchestrator.workflows.shown import steps
from orchestrator.workflows.states import StepState


class StepVerbs(output.MusterCommand):
    """Lists, shows and repairs the steps of a task."""

    def list_steps(self, *, task: str, limit: int, as_json: bool, **options: Any) -> None:
        rows = Step.objects.without_contents().filter(task_id=self._id(task))
        if options["state"]:
            rows = rows.filter(state__in=options["state"])
        if options["cursor"]:
            rows = rows.filter(pk__gt=cursors.read(options["cursor"], UUID))
        page, more = cursors.cut(list(rows.order_by("pk")[: limit + 1]), limit)
        now = clock.now()
        views = steps.views(page, now=now, seen_by=self.principal)
        if as_json:
            items = [document(steps.summary(view)) for view in views]
            self.show_items(items, next_cursor=more)
        elif not views:
            self.stdout.write("No step.")
        else:
            self.show(task_tables.steps_table(views, now))
            self.lead_on(more)

    def show_step(self, *, task: str, step: str, as_json: bool, **options: Any) -> None:
        row = selection.step(self._id(task), step)
        now = clock.now()
        (view,) = steps.views([row], now=now, seen_by=self.principal)
        if as_json:
            detail = steps.detail(view, row.task.template, seen_by=self.principal)
            self.show_json(document(detail))
        else:
            self.show(*task_tables.step_page(view, now, seen_by=self.principal))

    def reset_steps(self, **options: Any) -> None:
        self._repair(engine.reset_for_retry, named=options["reset_by"], **options)

    def resolve_steps(self, **options: Any) -> None:
        self._repair(engine.resolve_manually, named=options["resolved_by"], **options)

    def cancel_steps(self, **options: Any) -> None:
        self._repair(engine.cancel_step, named=options["cancelled_by"], **options)

    def complete_steps(self, *, result: Any, metadata: Any, **options: Any) -> None:
        verb = partial(
            engine.complete_manually, result=result, metadata=metadata, principal=self.principal
        )
        self._repair(verb, named=options["completed_by"], **options)

    def _repair(
        self,
        verb: Callable[..., Step],
        *,
        task: str,
        names: Sequence[str],
        reason: str,
        named: str | None,
        force: bool,
        as_json: bool,
        failed: bool = False,
        **options: Any,
    ) -> None:
        id = self._id(task)
        chosen = [selection.step(id, name) for name in names]
        if failed:
            chosen += Step.objects.filter(task_id=id, state=StepState.ERROR).order_by("pk")
        if not chosen:
            raise CommandError("No step to repair: name some" + (", none failed" * failed))
        values = {"reason": engine.on_behalf_of(named, reason), "force": force}
        for step in chosen:
            verb(step.pk, actor=self.principal.actor, now=clock.now(), **values)
        relay.flush()
        now = clock.now()
        rows = Step.objects.filter(pk__in=[step.pk for step in chosen]).order_by("pk")
        views = steps.views(list(rows), now=now, seen_by=self.principal)
        if as_json:
            self.show_items(document(steps.summary(view)) for view in views)
        else:
            actor = self.principal.actor
            self.show(*task_tables.repaired(views, now, reason=reason, actor=actor, named=named))

    def _id(self, text: str) -> UUID:
        return selection.task_id(text, self.visible(Task.objects))

    def _task(self, text: str) -> Task:
        return Task.objects.select_related("template").get(pk=self._id(text))
