"""Arguments of `manage.py task`, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from orchestrator.core import executions
from orchestrator.core.management import arguments, output
from orchestrator.workflows import engine
from orchestrator.workflows.models import TaskStaleness
from orchestrator.workflows.models.tasks import TaskQuerySet, may_scan
from orchestrator.workflows.states import StepState, TaskState

REASON_MAX = 500
AUDIT_MAX = 10_000
"""The most transitions that `audit` shows."""

GIVEN_NAMES = {
    "reset-step": "--reset-by",
    "resolve-step": "--resolved-by",
    "complete-step": "--completed-by",
    "cancel-step": "--cancelled-by",
}
ENDS = {
    "cancel": ("Cancel a task, its steps and their executions.", False),
    "release": ("Have a task in error advanced again, as it is.", True),
    "resolve": ("Close a task that is blocked by failures: its work was done elsewhere.", True),
}
"""The effect of each verb, and True if a reason is required."""

REPAIRS = {
    "reset-step": "Try steps again; their attempts count from 0 again.",
    "resolve-step": "Count steps as satisfied, without results.",
    "complete-step": "Complete steps with a result that the steps after them see.",
    "cancel-step": "End steps without their work; the steps after them do not begin.",
}


def add_verbs(verbs: Any) -> None:
    """Add the parser of each verb."""
    _add_create(verbs.add_parser("create", help="Request a task; prints its id."))
    _add_list(verbs.add_parser("list", help="Tasks, newest first."))
    _of_task(verbs.add_parser("show", help="One task, with its steps."))
    for verb, (text, needs_reason) in ENDS.items():
        end = verbs.add_parser(verb, help=text)
        _of_task(end)
        end.add_argument("--reason", type=arguments.text(REASON_MAX), required=needs_reason)
    _add_steps(
        verbs.add_parser("steps", help="The steps of a task, and the steps that each waits for.")
    )
    step = verbs.add_parser("step", help="One step, with its result and executions.")
    _of_task(step)
    step.add_argument("step", help="Its name, its id, or the beginning of its id.")
    for verb, text in REPAIRS.items():
        _add_repair(verbs.add_parser(verb, help=text), verb)
    audit = verbs.add_parser("audit", help="The transitions of a task and its steps, oldest first.")
    _of_task(audit)
    audit.add_argument("--step", help="Only the transitions of this step.")
    arguments.add_limit(audit, default=500, most=AUDIT_MAX)
    _add_staleness(verbs.add_parser("staleness", help="Open tasks, the most stale first."))
    detection = verbs.add_parser(
        "detect-stale", help="Find the stale tasks now, and act as their templates say."
    )
    output.add_json(detection)
    drawn = verbs.add_parser(
        "graph", help="The steps of a task in order, each after those it waits for."
    )
    _of_task(drawn)
    drawn.add_argument("--mermaid", action="store_true", help="Print the graph as Mermaid.")


def _of_task(parser: CommandParser) -> None:
    parser.add_argument("task", help="The task's id, or the beginning of it.")
    output.add_json(parser)


def _add_create(parser: CommandParser) -> None:
    parser.add_argument(
        "template", type=arguments.template_ref(parts=3), metavar="NAMESPACE/NAME/VERSION"
    )
    parser.add_argument(
        "--context",
        type=arguments.json_object,
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


def _add_staleness(parser: CommandParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--health", choices=TaskStaleness.Health.values)
    which.add_argument(
        "--dry-run",
        action="store_true",
        help="What the next detection would find and do; nothing is done.",
    )
    arguments.add_limit(parser, default=100)
    output.add_json(parser)


def _add_repair(parser: CommandParser, verb: str) -> None:
    _of_task(parser)
    several = "*" if verb == "reset-step" else "+"
    parser.add_argument("names", nargs=several, metavar="STEP", help="Names or ids of steps.")
    if verb == "reset-step":
        parser.add_argument("--failed", action="store_true", help="Reset every step in error.")
    if verb == "complete-step":
        parser.add_argument(
            "--result",
            type=arguments.json_value,
            required=True,
            metavar="JSON|@FILE",
            help="The result that the steps after it see.",
        )
        parser.add_argument(
            "--metadata",
            type=arguments.json_object,
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


# --- what is asked for ----------------------------------------------------------------------------


def new_task(options: Mapping[str, Any]) -> engine.NewTask:
    """The task that the options of `create` ask for."""
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


def filtered(rows: TaskQuerySet, options: Mapping[str, Any]) -> TaskQuerySet:
    """Those of the tasks that the options of `list` leave."""
    if options["open"]:
        rows = rows.open()
    if options["state"]:
        rows = rows.in_state(*options["state"])
    if options["correlation_id"]:
        rows = rows.filter(correlation_id=options["correlation_id"])
    if options["template"]:
        names = zip(("namespace", "name", "version"), options["template"], strict=False)
        rows = rows.of_templates(**dict(names))
    return rows


def scans(options: Mapping[str, Any]) -> bool:
    """True if no index leads to what the options of `list` ask for."""
    has_index = options["open"] or options["correlation_id"]
    return not has_index and may_scan(states=options["state"])
