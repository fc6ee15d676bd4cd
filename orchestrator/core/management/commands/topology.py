"""`manage.py topology`: show the queues, compare them with the broker, declare, migrate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orchestrator.core import declarations, topology
from orchestrator.core.declarations import Finding
from orchestrator.core.management import broker_check, broker_topology, output
from orchestrator.core.management.pages import topology as topology_page
from orchestrator.core.management.tables import Table
from orchestrator.core.topology import QueueSpec


class Command(output.MusterCommand):
    help = "Exchanges and queues: show, check, apply, migrate."
    permissions = {
        "show": output.NOBODY,
        "check": "topology.read",
        "apply": "topology.change",
        "migrate": "topology.change",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, title="verbs")
        show = verbs.add_parser("show", help="Every queue of the topology; asks no broker.")
        show.add_argument("--format", choices=["table", "markdown", "json"], default="table")
        check = verbs.add_parser(
            "check",
            help="Compare with the broker; changes nothing, fails on any difference. Bindings and "
            "policies need RabbitMQ's management API; without it, says that they were not checked.",
        )
        check.add_argument(
            "--running",
            action="store_true",
            help="fail on a queue without a consumer, too: services should be up",
        )
        output.add_json(check)
        verbs.add_parser("apply", help="Declare the shared queues and those of all known workers.")
        migrate = verbs.add_parser(
            "migrate", help="Redeclare queues whose arguments changed, with all their messages."
        )
        migrate.add_argument(
            "--force",
            action="store_true",
            help="Even if queues have consumers; the sweep replaces their unacknowledged messages.",
        )
        output.add_json(migrate)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "show": self.show_wanted,
            "check": self.check_broker,
            "apply": self.apply,
            "migrate": self.migrate,
        }
        verbs[verb](**options)

    def show_wanted(self, *, format: str, **options: Any) -> None:
        if format == "markdown":
            self.stdout.write(topology_page.page(), ending="")
        elif format == "json":
            exchanges = [
                {"name": name, "type": kind, "purpose": purpose}
                for name, (kind, purpose) in topology.exchange_purposes().items()
            ]
            queues = [_described(spec) for spec in topology_page.every_queue()]
            self.show_json({"exchanges": exchanges, "queues": queues})
        else:
            table = Table("queue", "owner", "exchange", "*routing key", "*arguments")
            for spec in topology_page.every_queue():
                table.add_row(
                    output.plain(spec.name),
                    spec.owner,
                    output.plain(spec.exchange or "(default)"),
                    output.plain(spec.routing_key),
                    output.plain("\n".join(f"{k}={v}" for k, v in spec.arguments.items())),
                )
            self.show(table)

    def check_broker(self, *, running: bool, as_json: bool, **options: Any) -> None:
        with broker_topology.connected() as link:
            checked = broker_check.check(link, broker_topology.every_queue())
        if as_json:
            items = [asdict(each) | {"state": each.state} for each in checked.findings]
            self.show_json(
                {"items": items, "next_cursor": None, "not_checked": checked.not_checked}
            )
        else:
            self._show_findings(checked.findings)
            for what in checked.not_checked:
                self.stdout.write(f"Not checked: {what}")
        if complaint := _complaint(checked.findings, running=running):
            raise CommandError(complaint)
        if not as_json:
            for line in _problems(checked.findings):
                self.stdout.write(line)

    def _show_findings(self, findings: list[Finding]) -> None:
        table = Table("*name", "state", "argument", "*wanted", "*found", ">ready", ">consumers")
        for finding in findings:
            counts = (str(finding.messages), str(finding.consumers))
            if finding.kind == "exchange" or finding.is_missing:
                counts = ("", "")
            state = output.status(finding.state)
            lines = [
                (difference.argument, _text(difference.wanted), _text(difference.found))
                for difference in finding.differences
            ] or [("", "", "")]
            table.add_row(output.plain(finding.name), state, *lines[0], *counts)
            for line in lines[1:]:
                table.add_row("", "", *line)
        self.show(table)

    def apply(self, **options: Any) -> None:
        specs = broker_topology.every_queue()
        with broker_topology.connected() as link:
            declarations.declare(link, specs)
        self.stdout.write(f"{len(specs)} queues are declared and bound.")

    def migrate(self, *, force: bool, as_json: bool, **options: Any) -> None:
        table = Table("*queue", ">messages moved")
        moved = []
        with broker_topology.connected(confirm=True) as link:
            specs = broker_topology.every_queue()
            for each in broker_topology.migrate(link, specs, force=force):
                moved.append(each)
                table.add_row(output.plain(each.queue), f"{each.messages:,}")
        if as_json:
            self.show_items(asdict(each) for each in moved)
        elif moved:
            self.show(table)
        else:
            self.stdout.write("No queue differs; nothing was moved.")


def _complaint(findings: Sequence[Finding], *, running: bool) -> str:
    """The faults, and how to mend them; empty if there are none."""
    differing = [finding for finding in findings if finding.differences]
    missing = [finding for finding in findings if finding.is_missing]
    problems = [
        line
        for finding in findings
        for line in _problems([finding])
        if running or finding.state != declarations.NO_CONSUMER
    ]
    parts = []
    if differing:
        parts.append(
            f"{len(differing)} of {len(findings)} differ\n"
            f"{declarations.describe(differing)}\n{declarations.REMEDY}"
        )
    if missing:
        names = ", ".join(finding.name for finding in missing)
        parts.append(
            f"{len(missing)} of {len(findings)} missing: {names}; "
            f"declare them: {broker_check.APPLY}"
        )
    return "\n".join(parts + problems)


def _problems(findings: Sequence[Finding]) -> list[str]:
    return [
        f"{finding.kind} {finding.name}: {problem.what}; {problem.remedy}"
        for finding in findings
        for problem in finding.problems
    ]


def _described(spec: QueueSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "exchange": spec.exchange,
        "routing_key": spec.routing_key,
        "arguments": spec.arguments,
        "owner": spec.owner,
        "purpose": spec.purpose,
    }


def _text(value: Any) -> Any:
    return output.plain("(none)" if value is None else value)
