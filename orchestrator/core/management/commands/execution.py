"""`manage.py execution`: submit, list, show, watch and cancel executions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from orchestrator.core import clock, cursors, executions, relay, search, words
from orchestrator.core.executions import BOUNDS
from orchestrator.core.live_output import Follower
from orchestrator.core.management import (
    arguments,
    execution_view,
    log_view,
    output,
    selection,
    watching,
)
from orchestrator.core.models import Action, Execution, ExecutionEvent, Worker
from orchestrator.core.models.execution_sets import may_scan
from orchestrator.core.models.executions import CANCEL_REASON_MAX, REQUEST_REASON_MAX
from orchestrator.core.models.output import STREAMS
from orchestrator.core.reasons import Reason
from orchestrator.core.shown import executions as shown
from orchestrator.core.shown.documents import document
from orchestrator.core.shown.output import OutputPart
from orchestrator.core.states import ExecutionStatus

COUNT_MAX = 1_000_000
FILTERS = ("open", "status", "action", "reason", "worker")
NO_MATCH = "No execution matches."
NONE = "No execution. Submit one: manage.py execution submit ACTION_REF"


class Command(output.MusterCommand):
    help = "Submit, list, show, watch and cancel executions."
    permissions = {
        "submit": "executions.run",
        "list": "executions.read",
        "show": "executions.read",
        "watch": "executions.read",
        "logs": "executions.read",
        "cancel": "executions.cancel",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        _add_submit(verbs.add_parser("submit", help="Accept an execution; prints its id."))
        _add_list(verbs.add_parser("list", help="Executions, newest first."))
        show = verbs.add_parser("show", help="One execution, with its history.")
        show.add_argument("id", help="Its id, or the beginning of it.")
        output.add_json(show)
        watch = verbs.add_parser("watch", help="Print each transition as it happens.")
        which = watch.add_mutually_exclusive_group(required=True)
        which.add_argument(
            "id", nargs="?", help="Its id, or the beginning of it; stops when it has ended."
        )
        which.add_argument("--all", action="store_true", help="All executions, until Ctrl-C.")
        _add_logs(verbs.add_parser("logs", help="What an execution printed, also while it runs."))
        cancel = verbs.add_parser("cancel", help="Cancel: immediately, or through its worker.")
        cancel.add_argument("id", help="Its id, or the beginning of it.")
        cancel.add_argument(
            "--reason", type=arguments.text(CANCEL_REASON_MAX), help="Kept with it."
        )

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "submit": self.submit,
            "list": self.list_rows,
            "show": self.show_one,
            "watch": self.watch,
            "logs": self.logs,
            "cancel": self.cancel,
        }
        verbs[verb](**options)

    def submit(self, *, count: int, wait: bool, as_json: bool, **options: Any) -> None:
        new = self._new(options)
        if count > 1 and new.idempotency_key is not None:
            raise CommandError("--idempotency-key creates one execution: leave out --count")
        ids: list[UUID] = []
        size: int = settings.MUSTER.bulk_limit
        for start in range(0, count, size):
            accepted = [row.pk for row in self._accept(new, min(size, count - start))]
            ids += accepted
            if not as_json:  # now: the next ones may be refused
                self.stdout.write("\n".join(map(str, accepted)))
                self.stdout.flush()
        ended = self._wait(ids, quiet=as_json) if wait else []
        if as_json:
            described = [document(shown.detail(row, seen_by=self.principal)) for row in ended]
            self.show_json({"ids": ids} | ({"executions": described} if wait else {}))
        if any(row.status != ExecutionStatus.COMPLETED for row in ended):
            raise SystemExit(1)

    def _accept(self, new: executions.NewExecution, count: int) -> list[Execution]:
        """Accept so many of the same. Raises RequestRefused with what is wrong with one of them."""
        try:
            rows = executions.request_many(
                [new] * count,
                requested_by=self.principal.actor,
                principal=self.principal,
                now=clock.now(),
            )
        except executions.RequestRefused as error:
            if new.action_ref:
                self._known_action(new.action_ref)
            once = [refusal for refusal in error.refusals if refusal.index == 0]
            raise executions.RequestRefused(once) from None
        relay.flush()
        return rows

    def _known_action(self, ref: str) -> str:
        """The ref of an action that whoever runs this may see. Raises CommandError."""
        rows = Action.objects.visible_to(self.principal, self.permission)
        if not rows.filter(ref=ref).exists():
            known = rows.values_list("ref", flat=True)
            hint = words.did_you_mean(ref, known) or "; see: manage.py pack list"
            raise CommandError(f"No action is called {ref!r}{hint}")
        return ref

    def _wait(self, ids: list[UUID], *, quiet: bool) -> list[Execution]:
        ended: list[Execution] = []
        for batch in watching.wait_for_all(ids):
            ended += batch
            if not quiet:
                for row in batch:
                    line = output.status(row.status) + output.plain(f"  {row.pk}  {row.reason}")
                    self.show(line)
                    if result := shown.result(row, seen_by=self.principal):
                        self.show(output.pretty(result))
        return ended

    def list_rows(
        self, *, query: str, as_json: bool, limit: int, cursor: str | None, **options: Any
    ) -> None:
        found = self._found(query, options, limit, cursor)
        page, more = found.rows, found.next_cursor
        looked_at = found.looked_at.text if found.looked_at else ""
        if as_json:
            items = [document(shown.ExecutionListed.model_validate(row)) for row in page]
            self.show_items(items, next_cursor=more)
            if looked_at:
                self.stderr.write(looked_at)
            return
        if page:
            self.show(execution_view.listing(page, clock.now(), seen_by=self.principal))
        else:
            is_filtered = bool(query) or any(options[name] for name in FILTERS)
            self.stdout.write(NO_MATCH if is_filtered or cursor else NONE)
        self.lead_on(more, found=bool(page), looked_at=looked_at)

    def _found(
        self, query: str, options: Mapping[str, Any], limit: int, cursor: str | None
    ) -> search.Found:
        """A page of what the options and the search ask for."""
        rows = self._filtered(options).defer("parameters", "result").select_related("worker")
        below = None if cursor is None else cursors.read(cursor, UUID)
        scans = _may_scan(options)
        if query.strip():
            wanted = search.read(query, search.Asked(self.principal, clock.now()))
            return search.find(wanted, rows, limit=limit, below=below, scans=scans)
        among = Execution.objects.all() if scans else None
        return search.Found(*cursors.newest(rows, limit=limit, below=below, among=among))

    def show_one(self, *, id: str, as_json: bool, **options: Any) -> None:
        rows = Execution.objects.select_related("worker", "action")
        execution = rows.get(pk=self._id(id))
        if as_json:
            self.show_json(document(shown.detail(execution, seen_by=self.principal)))
        else:
            self.show(*execution_view.page(execution, clock.now(), seen_by=self.principal))

    def watch(self, *, id: str | None, **options: Any) -> None:
        events = (
            watching.follow_all(self.visible(ExecutionEvent.objects))
            if id is None
            else watching.follow(self._id(id))
        )
        for event in events:
            self.show(execution_view.event_line(event))

    def logs(
        self,
        *,
        id: str,
        follow: bool,
        attempt: int | None,
        stream: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        streams = STREAMS if stream is None else (stream,)
        follower = Follower(self._id(id), attempt=attempt, streams=streams)
        before: OutputPart | None = None
        for part in log_view.parts(follower, follow=follow, seen_by=self.principal):
            if as_json:  # a line each: what follows has no end yet
                self.stdout.write(part.model_dump_json())
            else:
                self._print(before, part)
            self.stdout.flush()
            before = part
        ended = follower.execution
        if follow and (ended is None or ended.status != ExecutionStatus.COMPLETED):
            raise SystemExit(1)

    def _print(self, before: OutputPart | None, part: OutputPart) -> None:
        """Write a part to the stream of its name; what is said of it goes to stderr."""
        for note in log_view.notes(before, part):
            self.stderr.write(note)
        to = self.stdout if part.stream == "stdout" else self.stderr
        to.write(log_view.printable(part.text) if to.isatty() else part.text, ending="")

    def cancel(self, *, id: str, reason: str | None, **options: Any) -> None:
        execution = executions.cancel(
            execution_id=self._id(id),
            actor=self.principal.actor,
            reason=reason or "",
            now=clock.now(),
        )
        relay.flush()
        what = {
            ExecutionStatus.CANCELLED: "is cancelled",
            ExecutionStatus.CANCELING: "is being stopped by its worker: manage.py execution watch",
        }[ExecutionStatus(execution.status)]
        self.stdout.write(f"{execution.pk} {what}")

    def _id(self, text: str) -> UUID:
        return selection.execution_id(text, self.visible(Execution.objects))

    def _worker(self, text: str) -> Worker:
        return selection.worker(text, Worker.objects.visible_to(self.principal))

    def _filtered(self, options: Mapping[str, Any]) -> Any:
        rows = self.visible(Execution.objects)
        if options["open"]:
            rows = rows.open()
        if options["status"]:
            rows = rows.in_status(*options["status"])
        if options["action"]:
            rows = rows.filter(action_ref=self._known_action(options["action"]))
        if options["reason"]:
            rows = rows.filter(reason=options["reason"])
        if options["worker"]:
            rows = rows.filter(worker=self._worker(options["worker"]))
        return rows

    def _new(self, options: dict[str, Any]) -> executions.NewExecution:
        same = (
            "queue",
            "priority",
            "timeout_seconds",
            "queue_ttl_ms",
            "scheduled_timeout_seconds",
            "deadline_seconds",
            "idempotency_key",
            "correlation_id",
        )
        worker = options["worker"]
        return executions.NewExecution(
            action_ref=options["action_ref"] or "",
            parameters=options["parameters"] | dict(options["param"]),
            worker_id=None if worker is None else self._worker(worker).pk,
            worker_selector=dict(options["label"]) or None,
            retry=dict(options["retry"]) or None,
            reason=options["reason"] or "",
            **{name: options[name] for name in same},
        )


def _may_scan(options: Mapping[str, Any]) -> bool:
    return not options["open"] and may_scan(
        statuses=options["status"], reason=options["reason"], worker=options["worker"]
    )


def _add_submit(parser: CommandParser) -> None:
    parser.add_argument(
        "action_ref",
        nargs="?",
        help="Such as core.echo; see: manage.py pack list. May be left out for a queue with an "
        "action of its own.",
    )
    parser.add_argument(
        "--queue", metavar="NAME", help="Its queue; see: manage.py queue list. (default: default)"
    )
    arguments.add_pairs(
        parser,
        "--param",
        "A parameter; JSON where it parses as JSON, otherwise text. May be repeated.",
    )
    parser.add_argument(
        "--parameters",
        type=arguments.json_object,
        default={},
        metavar="JSON|@FILE",
        help="All parameters.",
    )
    parser.add_argument("--worker", metavar="NAME|ID", help="Run on this worker only.")
    parser.add_argument(
        "--priority",
        type=arguments.whole(*BOUNDS["priority"]),
        help="Higher is scheduled first.",
    )
    parser.add_argument("--queue-ttl-ms", type=arguments.whole(*BOUNDS["queue_ttl_ms"]))
    for name in ("timeout_seconds", "scheduled_timeout_seconds", "deadline_seconds"):
        _, most = BOUNDS[name]
        parser.add_argument(f"--{name.replace('_', '-')}", type=arguments.seconds(most))
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=arguments.label,
        metavar="KEY=VALUE",
        help="Only on workers with this label. May be repeated.",
    )
    arguments.add_pairs(
        parser,
        "--retry",
        "A change to the action's policy: max_attempts=3, backoff=linear, ... May be repeated.",
    )
    parser.add_argument("--idempotency-key", type=arguments.text(200))
    parser.add_argument("--correlation-id", type=arguments.text(100))
    parser.add_argument("--reason", type=arguments.text(REQUEST_REASON_MAX), help="Kept with it.")
    parser.add_argument(
        "--count", type=arguments.whole(1, COUNT_MAX), default=1, help="The number of executions."
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="Wait until all have ended; exit status 1 unless all completed.",
    )
    output.add_json(parser)


def _add_logs(parser: CommandParser) -> None:
    parser.add_argument("id", help="Its id, or the beginning of it.")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="Go on until it has ended; exit status 1 unless it completed.",
    )
    parser.add_argument(
        "--attempt",
        type=arguments.whole(1, 2**31 - 1),
        help="Only this one. (default: the latest, and those that follow)",
    )
    parser.add_argument("--stream", choices=STREAMS, help="Only this one.")
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="Print a JSON document a line."
    )


def _add_list(parser: CommandParser) -> None:
    parser.add_argument(
        "query",
        nargs="?",
        default="",
        metavar="SEARCH",
        help="Such as 'status:failed ran:>5s', in quotes; after -- if it begins with a minus. See "
        "docs/search.md.",
    )
    arguments.add_choices(parser, "--status", ExecutionStatus)
    parser.add_argument("--action", metavar="ACTION_REF")
    parser.add_argument("--worker", metavar="NAME|ID")
    parser.add_argument(
        "--reason",
        choices=[reason.value for reason in Reason],
        metavar="CODE",
        help="The reason of its end.",
    )
    parser.add_argument("--open", action="store_true", help="Only executions that have not ended.")
    arguments.add_page(parser)
    output.add_json(parser)
