"""`manage.py task`: request, list, show and end tasks; show and repair their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import clock, cursors, relay
from orchestrator.core.management import output
from orchestrator.core.shown.documents import document
from orchestrator.workflows import engine
from orchestrator.workflows.management import selection, task_options, task_tables, watching
from orchestrator.workflows.management.step_verbs import StepVerbs
from orchestrator.workflows.management.task_options import AUDIT_MAX
from orchestrator.workflows.models import Task, TaskStaleness, TransitionRecord
from orchestrator.workflows.shown import graph, mermaid, steps
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.shown.tasks import TaskHealth, TransitionOut
from orchestrator.workflows.states import TaskState


class Command(StepVerbs):
    help = "Tasks: request, list, show, cancel; show and repair their steps."
    permissions = {
        "create": "tasks.run",
        "list": "tasks.read",
        "show": "tasks.read",
        "cancel": "tasks.cancel",
        "release": "steps.repair",
        "resolve": "steps.repair",
        "steps": "tasks.read",
        "step": "tasks.read",
        "reset-step": "steps.repair",
        "resolve-step": "steps.repair",
        "complete-step": "steps.repair",
        "cancel-step": "steps.repair",
        "audit": "tasks.read",
        "staleness": "dlq.read",
        "detect-stale": "topology.change",
        "graph": "tasks.read",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        task_options.add_verbs(parser.add_subparsers(dest="verb", required=True, title="verbs"))

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "create": self.create,
            "list": self.list_rows,
            "show": self.show_one,
            "cancel": self.cancel,
            "release": self.release,
            "resolve": self.resolve,
            "steps": self.list_steps,
            "step": self.show_step,
            "reset-step": self.reset_steps,
            "resolve-step": self.resolve_steps,
            "complete-step": self.complete_steps,
            "cancel-step": self.cancel_steps,
            "audit": self.audit,
            "staleness": self.staleness,
            "detect-stale": self.detect_stale,
            "graph": self.graph,
        }
        verbs[verb](**options)

    def create(self, *, wait: bool, as_json: bool, **options: Any) -> None:
        try:
            task = engine.request(
                task_options.new_task(options),
                requested_by=self.principal.actor,
                principal=self.principal,
                now=clock.now(),
            )
        except engine.KeyMissing as error:
            raise CommandError(f"{error}: give --idempotency-key") from None
        relay.flush()
        if not as_json:
            self.stdout.write(str(task.pk))
        if wait:
            task = watching.wait_for_task(task.pk)
        if as_json:
            self.show_json(document(shown.detail(task, seen_by=self.principal)))
        elif wait:
            # on stderr, as a script reads the id from stdout
            self.stderr.write(task.state, style_func=str)
        if wait and task.state not in (TaskState.COMPLETE, TaskState.RESOLVED_MANUALLY):
            raise SystemExit(1)

    def list_rows(self, *, as_json: bool, limit: int, cursor: str | None, **options: Any) -> None:
        rows = task_options.filtered(self.visible(Task.objects), options).select_related("template")
        below = None if cursor is None else cursors.read(cursor, UUID)
        rows = rows.defer("context", "template__definition")
        among = Task.objects.all() if task_options.scans(options) else None
        page, more = cursors.newest(rows, limit=limit, below=below, among=among)
        counts = steps.counts(task.pk for task in page)
        if as_json:
            items = [document(shown.summary(task, counts[task.pk])) for task in page]
            self.show_items(items, next_cursor=more)
            return
        if page:
            self.show(task_tables.tasks(page, counts, clock.now(), seen_by=self.principal))
        else:
            none = "No task. Request one: manage.py task create NAMESPACE/NAME/VERSION"
            self.stdout.write("No task matches." if more else none)
        self.lead_on(more, found=bool(page))

    def show_one(self, *, task: str, as_json: bool, **options: Any) -> None:
        row = self._task(task)
        if as_json:
            self.show_json(document(shown.detail(row, seen_by=self.principal)))
        else:
            self.show(*task_tables.task_page(row, clock.now(), seen_by=self.principal))

    def staleness(self, *, as_json: bool, limit: int, health: str | None, **options: Any) -> None:
        if options["dry_run"]:
            self._foresee(as_json=as_json, limit=limit)
            return
        rows = self.visible(TaskStaleness.objects)
        if health:
            rows = rows.filter(health_status=health)
        listed = list(rows[:limit])
        if as_json:
            self.show_items(document(TaskHealth.model_validate(row)) for row in listed)
        elif listed:
            self.show(task_tables.staleness(listed))
        else:
            self.stdout.write("No open task.")

    def _foresee(self, *, as_json: bool, limit: int) -> None:
        found = shown.foresee(limit=limit, seen_by=self.principal, now=clock.now())
        if as_json:
            self.show_items(document(each) for each in found)
        elif found:
            self.show(task_tables.stale(found, done="would"))
        else:
            self.stdout.write("No task is over a limit; nothing would be done.")

    def detect_stale(self, *, as_json: bool, **options: Any) -> None:
        found = [
            shown.stale_task(task)
            for detected in engine.detect_all(clock.now)
            for task in detected.tasks
        ]
        relay.flush()
        if as_json:
            self.show_items(document(each) for each in found)
        elif found:
            self.show(task_tables.stale(found, done="done"))
        else:
            self.stdout.write("No task is over a limit; nothing was done.")

    def cancel(self, *, task: str, reason: str | None, as_json: bool, **options: Any) -> None:
        id = self._id(task)
        engine.cancel(id, reason=reason or "", actor=self.principal.actor, now=clock.now())
        relay.flush()
        if as_json:
            self.show_json(document(shown.detail(self._task(str(id)), seen_by=self.principal)))
        else:
            self.stdout.write(f"{id} is cancelled")

    def release(self, **options: Any) -> None:
        self._by_hand(engine.release, "is advanced again", **options)

    def resolve(self, **options: Any) -> None:
        self._by_hand(engine.resolve, "is resolved", **options)

    def _by_hand(
        self,
        verb: Callable[..., Task],
        done: str,
        *,
        task: str,
        reason: str,
        as_json: bool,
        **options: Any,
    ) -> None:
        id = self._id(task)
        verb(id, reason=reason, actor=self.principal.actor, now=clock.now())
        relay.flush()
        if as_json:
            self.show_json(document(shown.detail(self._task(str(id)), seen_by=self.principal)))
        else:
            self.stdout.write(f"{id} {done}")

    def audit(self, *, task: str, limit: int, as_json: bool, **options: Any) -> None:
        row = self._task(task)
        records = TransitionRecord.objects.of_task(row.pk)
        if options["step"]:
            records = records.filter(step=selection.step(row.pk, options["step"]))
        # the newest, plus one that shows whether there are more
        newest = list(records.select_related("step").order_by("-pk")[: limit + 1])
        listed = newest[:limit][::-1]
        if as_json:
            self.show_items(document(TransitionOut.model_validate(record)) for record in listed)
            return
        self.show(output.timeline(steps.timeline(listed)))
        if len(newest) > limit:
            self.stdout.write(
                f"Older transitions are left out: --limit {min(10 * limit, AUDIT_MAX)}"
            )

    def graph(self, *, task: str, as_json: bool, **options: Any) -> None:
        row = self._task(task)
        if as_json:
            self.show_json(document(shown.graph_of(row)))
            return
        folded = graph.folded(graph.of_task(row))
        if options["mermaid"]:
            self.stdout.write(mermaid.written(folded), ending="")
        else:
            self.show(*task_tables.graph_page(folded))
