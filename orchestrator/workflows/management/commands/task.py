"""`manage.py task`: request, list, show and end tasks; show and repair their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import clock, cursors, executions, publisher
from orchestrator.core.management import arguments, output
from orchestrator.core.shown.documents import document
from orchestrator.workflows import engine
from orchestrator.workflows.management import selection, task_tables, watching
from orchestrator.workflows.models import Step, Task, TaskStaleness, TransitionRecord
from orchestrator.workflows.shown import graph, mermaid, steps
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.shown.tasks import TaskHealth, TransitionOut
from orchestrator.workflows.states import StepState, TaskState

REASON_MAX = 500
GIVEN_NAMES = {
    "reset-step": "--reset-by",
    "resolve-step": "--resolved-by",
    "complete-step": "--completed-by",
}
REPAIRS = {
    "reset-step": "Try steps again; their attempts count from 0 again.",
    "resolve-step": "Count steps as satisfied, without results.",
    "complete-step": "Complete steps with a result that the steps after them see.",
}


class Command(output.MusterCommand):
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
        "audit": "tasks.read",
        "staleness": "dlq.read",
        "graph": "tasks.read",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_create(verbs.add_parser("create", help="Request a task; prints its id."))
        _add_list(verbs.add_parser("list", help="Tasks, newest first."))
        _of_task(verbs.add_parser("show", help="One task, with its steps."))
        cancel = verbs.add_parser("cancel", help="Cancel a task, its steps and their executions.")
        _of_task(cancel)
        cancel.add_argument("--reason", type=arguments.text(REASON_MAX))
        release = verbs.add_parser("release", help="Have a task in error advanced again, as it is.")
        _of_task(release)
        release.add_argument("--reason", type=arguments.text(REASON_MAX), required=True)
        resolve = verbs.add_parser(
            "resolve", help="Close a task that is blocked by failures: its work was done elsewhere."
        )
        _of_task(resolve)
        resolve.add_argument("--reason", type=arguments.text(REASON_MAX), required=True)
        _add_steps(
            verbs.add_parser(
                "steps", help="The steps of a task, and the steps that each waits for."
            )
        )
        step = verbs.add_parser("step", help="One step, with its result and executions.")
        _of_task(step)
        step.add_argument("step", help="Its name, its id, or the beginning of its id.")
        for verb, text in REPAIRS.items():
            _add_repair(verbs.add_parser(verb, help=text), verb)
        audit = verbs.add_parser(
            "audit", help="The transitions of a task and its steps, oldest first."
        )
        _of_task(audit)
        audit.add_argument("--step", help="Only the transitions of this step.")
        arguments.add_limit(audit, default=500, most=10_000)
        staleness = verbs.add_parser("staleness", help="Open tasks, the most stale first.")
        which = staleness.add_mutually_exclusive_group()
        which.add_argument("--health", choices=TaskStaleness.Health.values)
        which.add_argument(
            "--dry-run",
            action="store_true",
            help="What the next detection would find and do; nothing is done.",
        )
        arguments.add_limit(staleness, default=100)
        output.add_json(staleness)
        drawn = verbs.add_parser(
            "graph", help="The steps of a task in order, each after those it waits for."
        )
        _of_task(drawn)
        drawn.add_argument("--mermaid", action="store_true", help="Print the graph as Mermaid.")

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
            "audit": self.audit,
            "staleness": self.staleness,
            "graph": self.graph,
        }
        verbs[verb](**options)

    # --- tasks

    def create(self, *, wait: bool, as_json: bool, **options: Any) -> None:
        try:
            task = engine.request(
                _new(options),
                requested_by=self.principal.actor,
                principal=self.principal,
                now=clock.now(),
            )
        except engine.KeyMissing as error:
            raise CommandError(f"{error}: give --idempotency-key") from None
        publisher.flush()
        if not as_json:
            self.stdout.write(str(task.pk))
        if wait:
            task = watching.wait_for_task(task.pk)
        if as_json:
            self.show_json(document(shown.detail(task, seen_by=self.principal)))
        elif wait:
            self.show(output.status(task.state))
        if wait and task.state not in (TaskState.COMPLETE, TaskState.RESOLVED_MANUALLY):
            raise SystemExit(1)

    def list_rows(self, *, as_json: bool, limit: int, cursor: str | None, **options: Any) -> None:
        rows = _filtered(self.visible(Task.objects), options).select_related("template")
        if cursor is not None:
            rows = rows.filter(pk__lt=cursors.read(cursor, UUID))
        heavy = ("context", "template__definition")
        page = list(rows.defer(*heavy).order_by("-pk")[: limit + 1])
        more = cursors.write(page[limit - 1].pk) if len(page) > limit else None
        page = page[:limit]
        counts = steps.counts(task.pk for task in page)
        if as_json:
            items = [document(shown.summary(task, counts[task.pk])) for task in page]
            self.show_items(items, next_cursor=more)
        elif not page:
            self.stdout.write("No task. Request one: manage.py task create NAMESPACE/NAME/VERSION")
        else:
            now = clock.now()
            self.show(task_tables.tasks(page, counts, now, seen_by=self.principal))
            if more:
                self.stdout.write(f"More: --cursor {more}")

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
            self.show(task_tables.foreseen(found))
        else:
            self.stdout.write("No task is over a limit; nothing would be done.")

    def cancel(self, *, task: str, reason: str | None, as_json: bool, **options: Any) -> None:
        id = self._id(task)
        engine.cancel(id, reason=reason or "", actor=self.principal.actor, now=clock.now())
        publisher.flush()
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
        publisher.flush()
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
            self.stdout.write(f"Older transitions are left out: --limit {min(10 * limit, 10_000)}")

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

    # --- steps

    def list_steps(self, *, task: str, limit: int, as_json: bool, **options: Any) -> None:
        rows = Step.objects.without_contents().filter(task_id=self._id(task))
        if options["state"]:
            rows = rows.filter(state__in=options["state"])
        if options["cursor"]:
            rows = rows.filter(pk__gt=cursors.read(options["cursor"], UUID))
        page = list(rows.order_by("pk")[: limit + 1])
        more = cursors.write(page[limit - 1].pk) if len(page) > limit else None
        now = clock.now()
        views = steps.views(page[:limit], now=now, seen_by=self.principal)
        if as_json:
            items = [document(steps.summary(view)) for view in views]
            self.show_items(items, next_cursor=more)
        elif not views:
            self.stdout.write("No step.")
        else:
            self.show(task_tables.steps_table(views, now))
            if more:
                self.stdout.write(f"More: --cursor {more}")

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
        publisher.flush()
        now = clock.now()
        rows = Step.objects.filter(pk__in=[step.pk for step in chosen]).order_by("pk")
        views = steps.views(list(rows), now=now, seen_by=self.principal)
        if as_json:
            self.show_items(document(steps.summary(view)) for view in views)
        else:
            self.show(task_tables.steps_table(views, now))

    def _id(self, text: str) -> UUID:
        return selection.task_id(text, self.visible(Task.objects))

    def _task(self, text: str) -> Task:
        return Task.objects.select_related("template").get(pk=self._id(text))


def _new(options: dict[str, Any]) -> engine.NewTask:
    namespace, name, version = options["template"]
    texts: dict[str, Any] = {
        name: options[name] or "" for name in ("initiator", "source_system", "reason")
    }
    same = ("priority", "correlation_id", "parent_correlation_id", "idempotency_key")
    return engine.NewTask(
        namespace=namespace,
        name=name,
        version=version,
        context=options["context"] | dict(options["set"]),
        tags=options["tag"],
        **texts,
        **{name: options[name] for name in same},
    )


def _filtered(rows: Any, options: dict[str, Any]) -> Any:
    if options["open"]:
        rows = rows.open()
    if options["state"]:
        rows = rows.filter(state__in=options["state"])
    if options["correlation_id"]:
        rows = rows.filter(correlation_id=options["correlation_id"])
    for name, value in zip(
        ("namespace", "name", "version"), options["template"] or (), strict=False
    ):
        rows = rows.filter(**{f"template__{name}": value})
    return rows


def _of_task(parser: CommandParser) -> None:
    parser.add_argument("task", help="The task's id, or the beginning of it.")
    output.add_json(parser)


def _add_create(parser: CommandParser) -> None:
    parser.add_argument(
        "template", type=arguments.template_ref(parts=3), metavar="NAMESPACE/NAME/VERSION"
    )
    parser.add_argument(
        "--context",
        type=arguments.json_object("--context"),
        default={},
        metavar="JSON|@FILE",
        help="The context of the task.",
    )
    arguments.add_pairs(
        parser, "--set", "One key of the context; JSON where it parses as JSON, otherwise text."
    )
    parser.add_argument("--initiator", type=arguments.text(150))
    parser.add_argument("--source-system", type=arguments.text(150))
    parser.add_argument("--reason", type=arguments.text(REASON_MAX))
    parser.add_argument(
        "--tag", action="append", default=[], type=arguments.text(100), help="May be repeated."
    )
    parser.add_argument(
        "--priority",
        type=arguments.whole(*executions.BOUNDS["priority"]),
        default=0,
        help="The priority of its executions.",
    )
    parser.add_argument("--correlation-id", type=arguments.text(100))
    parser.add_argument("--parent-correlation-id", type=arguments.text(100))
    parser.add_argument("--idempotency-key", type=arguments.text(200))
    parser.add_argument(
        "--wait",
        action="store_true",
        help="Wait until it ends, is in error or blocked; exit status 1 unless it is complete.",
    )
    output.add_json(parser)


def _add_list(parser: CommandParser) -> None:
    arguments.add_choices(parser, "--state", TaskState)
    parser.add_argument(
        "--template",
        type=arguments.template_ref(parts=1),
        metavar="NAMESPACE[/NAME[/VERSION]]",
    )
    parser.add_argument("--correlation-id")
    parser.add_argument(
        "--open", action="store_true", help="Only tasks that have not ended and are not in error."
    )
    arguments.add_page(parser)
    output.add_json(parser)


def _add_steps(parser: CommandParser) -> None:
    _of_task(parser)
    arguments.add_choices(parser, "--state", StepState)
    arguments.add_page(parser, default=200)


def _add_repair(parser: CommandParser, verb: str) -> None:
    _of_task(parser)
    several = "*" if verb == "reset-step" else "+"
    parser.add_argument("names", nargs=several, metavar="STEP", help="Names or ids of steps.")
    if verb == "reset-step":
        parser.add_argument("--failed", action="store_true", help="Reset every step in error.")
    if verb == "complete-step":
        parser.add_argument(
            "--result",
            type=arguments.json_value("--result"),
            required=True,
            metavar="JSON|@FILE",
            help="The result that the steps after it see.",
        )
        parser.add_argument(
            "--metadata",
            type=arguments.json_object("--metadata"),
            metavar="JSON|@FILE",
            help="The evidence for the result, kept with the step.",
        )
    arguments.add_given_name(parser, GIVEN_NAMES[verb])
    parser.add_argument(
        "--reason", type=arguments.text(REASON_MAX), required=True, help="Stored in the audit."
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="Repair it even in flight: its execution is cancelled, and its result is ignored.",
    )
