"""The pages of docs/ that are generated from the code, so that they stay correct."""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string

from orchestrator.core import frame, topology
from orchestrator.core.frame import Life
from orchestrator.core.reasons import Known, Reason
from orchestrator.core.retry_policy import RETRYABLE
from orchestrator.core.state_machine import Machine
from orchestrator.core.topology import QueueSpec

GENERATED = "<!-- Written by `manage.py docs generate`; change the code that it describes. -->"
WORKER_ID = "<id>"
LISTENER = "<name>.<random>"

UNITS = {
    "_seconds": "seconds",
    "_ms": "milliseconds",
    "_bytes": "bytes",
    "_mb": "MiB",
    "_multiplier": "times",
    "_limit": "executions",
    "_size": "rows or messages",
}


def pages() -> dict[str, Callable[[], str]]:
    """Every generated page, by its path below docs/."""
    return {
        "state-machine.md": state_machine_page,
        "topology.md": topology_page,
        "reference/settings.md": settings_page,
        "reference/reasons.md": reasons_page,
        "reference/permissions.md": permissions_page,
        "reference/commands.md": commands_page,
        "reference/metrics.md": metrics_page,
        **{path: page for app in frame.ours() for path, page in app.reference_pages.items()},
    }


def outdated(root: Path) -> list[str]:
    """The pages below `root` that differ from the code."""
    return [name for name, page in pages().items() if _read(root / name) != page()]


def write(root: Path) -> list[str]:
    """Write the pages that are out of date; returns their paths."""
    names = outdated(root)
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[name](), encoding="utf-8")
    return names


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


# --- the state machine ---------------------------------------------------------------------------


def state_machine_page() -> str:
    lives = frame.collect(lambda app: app.lives)
    return page_of(
        f"The lives of {_listed([life.title.lower() for life in lives])}",
        "Status and state change in one place, `orchestrator.core.state_machine`, by "
        "compare-and-swap: a transition happens only if the row still has the status and the "
        "attempt that the caller read. Every transition writes one row of history. A terminal row "
        "is final: the database refuses every change of it, and of its history.",
        *(part for life in lives for part in _life(life)),
    )


def _life(life: Life) -> Iterator[str]:
    yield f"## {life.title}"
    yield life.intro
    yield from _machine_parts(import_string(life.machine), life.begins)
    yield from life.notes


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _machine_parts(machine: Machine, begins: str) -> Iterator[str]:
    states = list(machine.states)
    rules = machine.transitions.values()
    ordered = [s for s in states if s not in machine.ended]
    ordered += [s for s in states if s in machine.ended]
    kind = machine.column.capitalize()
    yield table_of(
        (kind, "Who moves it on", "By these events"),
        [
            (
                f"`{state}`",
                machine.who_moves_it_on[state],
                ", ".join(f"`{rule.event}`" for rule in rules if state in rule.sources) or "none",
            )
            for state in ordered
        ],
    )
    yield _mermaid(_state_diagram(machine, begins))
    yield table_of(
        ("Event", "From", "To", "By", f"New {machine.fence}"),
        [
            (
                f"`{rule.event}`",
                ", ".join(f"`{state}`" for state in states if state in rule.sources),
                f"`{rule.target}`",
                rule.who,
                "yes" if rule.new_attempt else "",
            )
            for rule in rules
        ],
    )


def _state_diagram(machine: Machine, begins: str) -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {machine.initial}: {begins}"
    arrows: dict[tuple[str, str], list[str]] = {}
    for rule in machine.transitions.values():
        for source in machine.states:
            if source in rule.sources:
                arrows.setdefault((source, rule.target), []).append(rule.event)
    for (origin, target), events in arrows.items():
        yield f"    {origin} --> {target}: {', '.join(events)}"
    for state in machine.states:
        if state in machine.terminal:
            yield f"    {state} --> [*]"


# --- the topology --------------------------------------------------------------------------------


def every_queue() -> list[QueueSpec]:
    """The shared queues, those of listeners, and those of an example worker."""
    return [
        *topology.shared_queues(),
        *queues_of_listeners(),
        *topology.worker_queues(WORKER_ID),
    ]


def queues_of_listeners() -> list[QueueSpec]:
    """The queues that their listeners declare themselves, and that go with their connections. What
    they are declared with is written there, above core; a test compares the two."""
    passing = "not durable, exclusive, deletes itself"
    return [
        QueueSpec(
            name=topology.told_queue(LISTENER),
            exchange=topology.executions_exchange(),
            routing_key=topology.COMPLETED,
            owner="executor",
            purpose=f"executions that ended, for one keeper of gates: {passing}",
            arguments={"x-max-length": 10_000},
        ),
        QueueSpec(
            name=topology.notifications_queue(LISTENER),
            exchange=topology.notifications_exchange(),
            routing_key="",
            owner="notifier",
            purpose=f"hints that something changed, for one notifier or API process: {passing}",
            arguments={"x-max-length": 50_000},
            exchange_type="fanout",
        ),
    ]


def topology_page() -> str:
    queues = every_queue()
    return page_of(
        "Exchanges and queues",
        "Every service declares the queues that it consumes and the dead letter queue, in any "
        "order. Each declaration is idempotent and repeated every ten seconds, so that deleted "
        "queues come back. If a queue exists with other arguments, the service exits with an "
        "error that names the queue, the argument, and both values. `manage.py topology check` "
        "compares the broker with this page. The prefix "
        f"`{settings.MUSTER.namespace}` is the setting `MUSTER_NAMESPACE`, and `{WORKER_ID}` is a "
        "worker's id. In any other namespace the names of workers' queues have it too: "
        "`blue.worker.<id>.executions`.",
        "## Exchanges",
        table_of(
            ("Exchange", "Type", "For"),
            [
                (f"`{name}`", kind, purpose)
                for name, (kind, purpose) in topology.exchange_purposes().items()
            ],
        ),
        "## Queues",
        table_of(
            ("Queue", "Holds", "Consumed by", "Exchange", "Routing key", "Arguments"),
            [
                (
                    f"`{spec.name}`",
                    spec.purpose,
                    spec.owner,
                    f"`{spec.exchange}`" if spec.exchange else "default",
                    f"`{spec.routing_key}`" if spec.routing_key else "none",
                    ", ".join(f"`{key}`: {value}" for key, value in spec.arguments.items()),
                )
                for spec in queues
            ],
        ),
        "The queues of listeners hold hints, the newest ones: what was missed is read from the "
        "rows. Nobody else declares or checks them. All others are durable, and none of those "
        "deletes itself: a queue that is deleted, expired or purged dead-letters nothing. A "
        "message in a worker's queue that waits longer than the TTL, or is rejected, goes to the "
        "dead letter exchange and from there to the drain, which ends or repeats its attempt.",
        "## Flow",
        _mermaid(_flow(queues)),
        "Messages carry ids and the attempt, never state: the row is the truth. A lost, "
        "repeated or late message costs time and nothing else.",
    )


def _flow(queues: Sequence[QueueSpec]) -> Iterator[str]:
    yield "flowchart LR"
    for number, name in enumerate(topology.exchange_purposes()):
        yield f'    x{number}{{{{"{name}"}}}}'
    exchanges = {name: f"x{n}" for n, name in enumerate(topology.exchange_purposes())}
    yield '    api(["api"]) --> ' + exchanges[topology.executions_exchange()]
    yield '    beat(["beat"]) --> default{{"default exchange"}}'
    for number, spec in enumerate(queues):
        name = spec.name.replace("<", "#lt;").replace(">", "#gt;")
        key = spec.routing_key.replace("<", "#lt;").replace(">", "#gt;")
        source = exchanges.get(spec.exchange, "default")
        arrow = f'-->|"{key}"|' if key else "-->"
        yield f'    {source} {arrow} q{number}[("{name}")] --> {spec.owner}(["{spec.owner}"])'
        if dead := spec.arguments.get("x-dead-letter-exchange"):
            why = "expired, rejected" if "x-message-ttl" in spec.arguments else "rejected"
            yield f'    q{number} -. "{why}" .-> {exchanges[dead]}'
    yield f"    executor --> {exchanges[topology.executions_exchange()]}"
    yield f"    worker --> {exchanges[topology.executions_exchange()]}"


# --- settings ------------------------------------------------------------------------------------


def settings_page() -> str:
    kind = type(settings.MUSTER)
    meanings = attribute_docstrings(kind)
    rows = []
    for field in fields(kind):
        unit = next((unit for end, unit in UNITS.items() if field.name.endswith(end)), "")
        default = (
            f"{field.default:g}"
            if isinstance(field.default, float)
            else str(field.default or "(empty)")
        )
        variable = f"`MUSTER_{field.name.upper()}`"
        rows.append(
            (
                variable,
                type(field.default).__name__,
                f"`{default}`" if default else "empty",
                unit,
                meanings[field.name],
            )
        )
    return page_of(
        "Settings",
        "Settings are environment variables, read once at start. An unknown `MUSTER_` variable, a "
        "value of the wrong type, and settings that contradict each other are refused then. "
        "`manage.py check` names the problem.",
        table_of(("Variable", "Type", "Default", "Unit", "Meaning"), rows),
        "The servers, and Django's settings:",
        table_of(
            ("Variable", "Without it", "Meaning"),
            [
                ("`DATABASE_URL`", "SQLite in `MUSTER_DATA_DIR`", "`postgresql://...`"),
                (
                    "`BROKER_URL`",
                    "a SQLite file in `MUSTER_DATA_DIR`",
                    "`amqp://...`, or `amqps://...` for TLS",
                ),
                (
                    "`BROKER_MANAGEMENT_URL`",
                    "the broker's host, port 15672 or 15671",
                    "RabbitMQ's management API, for `manage.py topology check`: "
                    "`http://USER:PASSWORD@HOST:15672`.",
                ),
                (
                    "`REDIS_URL`",
                    "each API process counts and computes for itself",
                    "`redis://...`, or `rediss://...` for TLS. For API processes alone.",
                ),
                ("`SECRET_KEY`", "created once, in `MUSTER_DATA_DIR`", "Django's secret key."),
                ("`ALLOWED_HOSTS`", "this machine's names", "Host names, separated by commas."),
                (
                    "`CSRF_TRUSTED_ORIGINS`",
                    "none",
                    "Origins of the admin behind a proxy, separated by commas. With "
                    "`MUSTER_TLS=on`: `https://` and each of `ALLOWED_HOSTS`.",
                ),
                (
                    "`FORWARDED_ALLOW_IPS`",
                    "`127.0.0.1`",
                    "Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed, "
                    "separated by commas.",
                ),
                (
                    "`HTTP_THREADS`",
                    "16",
                    "Requests of the API and the admin that are handled at once, in a process.",
                ),
                ("`DEBUG`", "off", "Pages that show code and settings when something fails."),
                ("`LOG_LEVEL`", "`INFO`", "`DEBUG`, `INFO`, `WARNING` or `ERROR`."),
            ],
        ),
    )


def attribute_docstrings(kind: type) -> dict[str, str]:
    """The docstrings below the attributes of a class, by attribute."""
    (body,) = (
        node.body
        for node in ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        if isinstance(node, ast.ClassDef)
    )
    docstrings = {}
    for attribute, text in pairwise(body):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            docstrings[attribute.target.id] = " ".join(str(text.value.value).split())
    return docstrings


# --- reasons -------------------------------------------------------------------------------------


def reasons_page() -> str:
    parts = [
        "Every attempt that ends has a reason. It says what is known about the action, and so "
        "whether it is safe to run it again. That of an execution is about its last attempt: an "
        "earlier one may have started.",
    ]
    for known in Known:
        reasons = [reason for reason in Reason if reason.known is known]
        parts += [
            f"## `{known.value}`",
            f"{known.text}.",
            table_of(
                ("Code", "Text", "May be retried"),
                [(f"`{r}`", r.text, "yes" if r in RETRYABLE else "no") for r in reasons],
            ),
        ]
    return page_of("Reasons", *parts)


# --- permissions ---------------------------------------------------------------------------------


def permissions_page() -> str:
    about = {frame.OWN: "one's own", frame.INSTALLATION: "the whole installation"}
    return page_of(
        "Permissions",
        "Every operation of the API, page and button of the admin, and verb of a command needs one "
        "of these. Roles are fixed sets of them; [access](../access.md) says how they are granted. "
        "A grant with a scope gives what is about packs, namespaces or workers, there, and nothing "
        "that is about the whole installation.",
        table_of(
            ("Permission", *(role.capitalize() for role in frame.ROLES), "About", "Permits"),
            [
                (
                    f"`{each.name}`",
                    *("yes" if role in (*each.roles, frame.ADMIN) else "" for role in frame.ROLES),
                    ", ".join(about.get(name, name) for name in each.about),
                    each.text,
                )
                for each in frame.collect(lambda app: app.permissions)
            ],
        ),
    )


# --- metrics -------------------------------------------------------------------------------------


def metrics_page() -> str:
    metrics = [
        metric
        for path in frame.collect(lambda app: app.metrics_described)
        for metric in import_string(path)
    ]
    return page_of(
        "Metrics",
        "`GET /metrics` of any API process answers for the whole installation. A histogram has the "
        "names below with `_bucket`, `_sum` and `_count`. [Monitoring](../monitoring.md) says what "
        "to do with them.",
        table_of(
            ("Metric", "Kind", "Labels", "Tells"),
            [
                (
                    f"`{metric.name}`",
                    type(metric).__name__.removeprefix("Pair").lower(),
                    ", ".join(f"`{label}`" for label in metric.labels),
                    metric.text,
                )
                for metric in metrics
            ],
        ),
    )


# --- commands ------------------------------------------------------------------------------------


def commands_page() -> str:
    parts = [
        "Run each as `manage.py COMMAND`. A command that fails writes the reason in one line to "
        "stderr and exits with status 1; wrong arguments exit with status 2. `manage.py help` also "
        "lists Django's own commands, such as `migrate` and `check`.",
    ]
    for name, command in own_commands():
        parser = command.create_parser("manage.py", name)
        parts += [f"## `{name}`", _sentence(command.help), *_arguments(parser)]
        for verb, sub, text in verbs_of(parser):
            parts += [f"### `{name} {verb}`", _sentence(text), *_arguments(sub)]
    return page_of("Commands", *parts)


def own_commands() -> Iterator[tuple[str, BaseCommand]]:
    """Our commands, by name."""
    names = {app.name for app in frame.ours()}
    for name, app in sorted(get_commands().items()):
        if app in names:
            yield name, load_command_class(app, name)


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """The verbs of a command, with the parser and the help of each."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {each.dest: each.help or "" for each in action._choices_actions}
            for verb, sub in action.choices.items():
                yield verb, sub, texts.get(verb, "")


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    ours = [action for action in parser._actions if not _is_everywhere(action)]
    if ours:
        rows = [(f"`{_spelled(action)}`", _help_text(parser, action)) for action in ours]
        yield table_of(("Argument", "Meaning"), rows)


def _is_everywhere(action: argparse.Action) -> bool:
    """Return True for help, hidden options such as Django's, and the verbs, which have own
    sections."""
    is_hidden = action.help == argparse.SUPPRESS or action.dest == "help"
    return is_hidden or isinstance(action, argparse._SubParsersAction)


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        name = str(action.metavar or action.dest)
        return f"[{name}]" if action.nargs == "?" else name
    option = action.option_strings[-1]
    if action.nargs == 0:
        return option
    if action.metavar is None and action.choices:
        return f"{option} {'|'.join(map(str, action.choices))}"
    return f"{option} {action.metavar or action.dest.upper()}"


def _help_text(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    text = _sentence(formatter._expand_help(action) if action.help else "")
    is_dull = action.default in (None, False, argparse.SUPPRESS) or action.default in ([], {})
    if action.option_strings and not is_dull and not _is_of_this_host(action):
        text += f" Default: `{action.default}`."
    return text.strip()


def _is_of_this_host(action: argparse.Action) -> bool:
    """Return True for defaults that differ between machines: a number of cores, or a folder."""
    return action.dest == "concurrency" or str(settings.BASE_DIR) in str(action.default)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


# --- markdown ------------------------------------------------------------------------------------


def page_of(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", GENERATED, *(part for part in parts if part)]) + "\n"


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _mermaid(lines: Iterable[str]) -> str:
    return "\n".join(["```mermaid", *lines, "```"])
