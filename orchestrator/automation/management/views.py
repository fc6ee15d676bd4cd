"""Rules, sensors, triggers, events and enforcements in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from orchestrator.automation.asking import Answer
from orchestrator.automation.criteria import shown as explained
from orchestrator.automation.models import (
    Enforcement,
    Event,
    Rule,
    Sensor,
    Trigger,
    TriggerType,
    Webhook,
)
from orchestrator.automation.shown import (
    answers,
    enforcements,
    events,
    rules,
    sensors,
    triggers,
    webhooks,
)
from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.management import output
from orchestrator.core.management.output import YEAR
from orchestrator.core.management.tables import Table
from orchestrator.core.redaction import quoted

LATEST = 10
"""The most answers on the page of a rule or an event."""
RULES_SHOWN = 50
"""The most rules on the page of a trigger."""


def trigger_types(rows: Sequence[TriggerType]) -> Table:
    table = Table("type", "pack", "state", "*description")
    for row in rows:
        table.add_row(
            output.plain(row.ref),
            output.plain(row.pack.name if row.pack else ""),
            "" if row.retired_at is None else Text("retired", style="red"),
            output.plain(row.description),
        )
    return table


def trigger_type_page(row: TriggerType) -> Iterator[RenderableType]:
    shown = triggers.type_shown(row)
    yield output.facts(
        [("Type", row.ref), ("Pack", row.pack.name if row.pack else "Muster itself"),
         ("Description", row.description)]
    )  # fmt: skip
    yield _heading("Parameters")
    yield output.pretty(shown.parameters_schema)
    yield _heading("Payload")
    yield output.pretty(shown.payload_schema)


def trigger_rows(rows: Sequence[Trigger], now: datetime) -> Table:
    table = Table(">number", "type", "fires next", ">", "*parameters")
    for row in rows:
        timer = triggers.timer_of(row)
        next_at = timer.next_fire_at if timer else None
        table.add_row(
            str(row.pk),
            output.plain(row.type.ref),
            output.moment(next_at),
            output.due(next_at, now) if next_at else "",
            output.line(json.dumps(triggers.shown(row).parameters, ensure_ascii=False)),
        )
    return table


def trigger_page(
    row: Trigger, ticks: Sequence[datetime], now: datetime, *, seen_by: Principal
) -> Iterator[RenderableType]:
    yield output.facts(triggers.situation(row, now))
    if ticks:
        yield _heading("Ticks")
        yield Text("\n".join(f"{output.moment(each)} UTC" for each in ticks))
    visible = Rule.objects.visible_to(seen_by).filter(trigger=row, retired_at__isnull=True)
    listed = list(visible[:RULES_SHOWN])
    yield _heading("Rules")
    yield (
        Text("none")
        if not listed
        else output.plain(
            "\n".join(f"{each.ref}{'' if each.is_enabled else ' (disabled)'}" for each in listed)
        )
    )


def webhook_rows(rows: Sequence[Webhook]) -> Table:
    table = Table("path", "profile", ">trigger", ">taken", ">refused", "last", "*last refusal")
    for row in rows:
        counts = list(row.deliveries.all())
        taken, refused = webhooks.totals(counts)
        refusals = [each for each in counts if not webhooks.is_taken(each.outcome)]
        last = max(refusals, key=lambda each: each.last_at, default=None)
        table.add_row(
            output.plain(row.path),
            output.plain(row.trigger.parameters["profile"]),
            str(row.trigger_id),
            f"{taken:,}",
            f"{refused:,}",
            output.moment(max((each.last_at for each in counts), default=None)),
            "" if last is None else output.line(f"{last.outcome}: {last.last_detail}"),
        )
    return table


def rule_rows(rows: Sequence[Rule]) -> Table:
    table = Table("rule", "state", "trigger", "action", "*description")
    for row in rows:
        table.add_row(
            output.plain(row.ref),
            _state(row),
            output.plain(row.trigger),
            output.plain(row.current.action_ref),
            output.plain(row.current.description),
        )
    return table


def rule_page(row: Rule, now: datetime, *, seen_by: Principal) -> Iterator[RenderableType]:
    yield output.facts(rules.situation(row))
    latest = Enforcement.objects.filter(rule=row).select_related("rule").order_by("-pk")
    if listed := list(latest[:LATEST]):
        yield _heading("Latest answers")
        yield enforcement_rows(listed, now, seen_by=seen_by)


def sensor_rows(rows: Sequence[Sensor]) -> Table:
    table = Table("sensor", "state", "service", ">events", ">restarts", "last event", "*problem")
    for row in rows:
        shown = sensors.summary(row)
        table.add_row(
            output.plain(row.ref),
            output.status(shown.state),
            output.plain(shown.service or ""),
            f"{shown.events:,}",
            str(shown.restarts or ""),
            output.moment(shown.last_event_at)[YEAR:],
            output.line(shown.problem),
        )
    return table


def sensor_page(row: Sensor, now: datetime) -> Iterator[RenderableType]:
    yield output.facts(sensors.situation(row, now))
    if changes := sensors.latest_changes(row, LATEST):
        yield _heading("Latest changes")
        table = Table("at", "change", "state", "by", "*why")
        for each in changes:
            table.add_row(
                output.moment(each.at)[YEAR:],
                each.event,
                output.status(each.to_state),
                output.plain(each.actor),
                output.line(each.reason),
            )
        yield table


def answer_page(answer: Answer) -> Iterator[RenderableType]:
    """The answer of a rule, leaf by leaf."""
    yield output.facts(answers.situation(answer))
    leaves = explained(answer.explanation)["criteria"]
    if not leaves:
        yield Text("\nIt has no criteria: every event matches.")
        return
    table = Table("", "path", "operator", "*found", "*compared with", "*note")
    for leaf in leaves:
        table.add_row(
            Text("yes", style="green") if leaf["answer"] else Text("no", style="red"),
            output.plain(leaf["path"]),
            output.plain(leaf["operator"]),
            output.line("nothing" if leaf["value"] is None else quoted(leaf["value"])),
            output.line(quoted(leaf["pattern"])),
            output.line(leaf["note"]),
        )
    yield Text()
    yield table


def event_rows(rows: Sequence[Event]) -> Table:
    table = Table("id", "received", "type", "source", ">matched", "key", "*problem")
    for row in rows:
        table.add_row(
            str(row.pk),
            output.moment(row.received_at)[YEAR:],
            output.plain(row.type_ref),
            output.plain(row.source),
            Text("waits", style="yellow") if row.matched is None else str(row.matched),
            output.line(row.dedup_key or ""),
            output.line(row.why_not_asked),
        )
    return table


def event_page(row: Event, now: datetime, *, seen_by: Principal) -> Iterator[RenderableType]:
    yield output.facts(events.situation(row, seen_by=seen_by))
    visible = Enforcement.objects.visible_to(seen_by).filter(event=row)
    listed = list(visible.select_related("rule").order_by("pk")[:LATEST])
    if listed:
        yield _heading("Answers")
        yield enforcement_rows(listed, now, seen_by=seen_by)
    yield _heading("Payload")
    yield output.pretty(events.payload(row, seen_by=seen_by))


def enforcement_rows(rows: Sequence[Enforcement], now: datetime, *, seen_by: Principal) -> Table:
    table = Table("id", "created", "rule", "state", ">took", "execution", "*why")
    for row in rows:
        took = ((row.ended_at or now) - row.created_at).total_seconds()
        table.add_row(
            str(row.pk),
            output.moment(row.created_at)[YEAR:],
            output.plain(row.rule.ref),
            output.status(row.state),
            words.span(took),
            str(row.execution_id or ""),
            output.line(enforcements.why(row, seen_by=seen_by)),
        )
    return table


def _state(row: Rule) -> Text:
    if row.retired_at is not None:
        return Text("retired", style="red")
    return Text("enabled", style="green") if row.is_enabled else Text("disabled", style="yellow")


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
