"""Muster's side of benchmarks of events; called by `muster_side`, with its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import django.conf
from django.db import connection, transaction

from benchmarks.remote import POLL_SECONDS, BenchmarkError
from orchestrator.automation import (
    enforcing,
    matching,
    messages,
    reporting,
    rules,
    trigger_types,
    triggers,
)
from orchestrator.automation.models import (
    Enforcement,
    Event,
    Revision,
    Rule,
    RuleRevision,
    Timer,
    Trigger,
    TriggerType,
)
from orchestrator.automation.reporting import Report
from orchestrator.automation.rules import NewRule
from orchestrator.automation.trigger_types import NewType
from orchestrator.core import authority, brokers, clock, relay, topology
from orchestrator.core.models import Execution, Pack

ACTOR = "benchmark"
TYPE = "bench.alert"
BULK = 1_000
"""Events of one bulk request: the API's limit."""

NEVER = {"trigger.missed": {"type": "lt", "pattern": 0}}
"""Criteria that hold for no tick: the rule keeps the timer awake, and nothing is run."""

SCHEMA = {
    "type": "object",
    "properties": {"host": {"type": "string"}, "kind": {"type": "integer"}},
    "required": ["host", "kind"],
}


def install_alert_rules(*, rules_count: int) -> None:
    """A type of events, and rules of which each event matches one, all with other criteria."""
    now, pack = clock.now(), Pack.objects.get(name="bench")
    trigger_types.install_types([NewType(ref=TYPE, payload_schema=SCHEMA)], pack=pack, now=now)
    for number in range(rules_count):
        rule = NewRule(
            ref=f"bench.alert-{number}",
            trigger_type=TYPE,
            criteria={
                "trigger.kind": {"type": "eq", "pattern": number},
                "trigger.host": {"type": "startswith", "pattern": "host-"},
            },
            action_ref="core.noop",
        )
        rules.install(rule, now=now)


def record_events(*, count: int, kinds: int) -> None:
    """Report so many events, each with a key, in bulks as the API takes them."""
    principal, first = authority.at_terminal(), time.monotonic_ns()
    for start in range(0, count, BULK):
        numbers = range(start, min(count, start + BULK))
        reports = [
            Report(
                trigger_type=TYPE,
                payload={"host": f"host-{number % 100}", "kind": number % kinds},
                key=f"{first}-{number}",
            )
            for number in numbers
        ]
        reporting.report_many(reports, source="api", principal=principal, now=clock.now())


# --- stage by stage, without an executor beside it -------------------------------------------


def stages_per_second(*, count: int, kinds: int) -> dict[str, float]:
    """Events a second through each stage, one after the other, in batches as in an executor, with
    their messages sent and confirmed: recorded, recorded to enforcement, enforcement to the
    request of its execution. Raises BenchmarkError if one is lost or doubled."""
    queues = [
        messages.events_queue(), messages.enforcements_queue(), topology.requests_queue(),
    ]  # fmt: skip
    with brokers.connection() as link:
        topology.declare(link.default_channel, queues)
    rates = {"recorded": _rate(count, lambda: record_events(count=count, kinds=kinds))}
    _expect("events", Event.objects.count(), count)
    event_ids = list(Event.objects.order_by("pk").values_list("pk", flat=True))
    rates["matched"] = _rate(count, lambda: _in_batches(event_ids, matching.match))
    _expect("enforcements", Enforcement.objects.count(), count)
    open_ids = list(Enforcement.objects.open().order_by("pk").values_list("pk", flat=True))
    rates["requested"] = _rate(count, lambda: _in_batches(open_ids, enforcing.enforce))
    _expect("executions", Execution.objects.count(), count)
    with brokers.connection() as link:
        channel: Any = link.default_channel
        for spec in queues:
            channel.queue_purge(spec.name)
    return rates


def _rate(count: int, call: Callable[[], object]) -> float:
    """The number of items a second, until the messages are confirmed, too."""
    started = time.perf_counter()
    call()
    relay.flush()
    return count / (time.perf_counter() - started)


def _in_batches(ids: Sequence[UUID], settle: Callable[..., int]) -> None:
    size = django.conf.settings.MUSTER.batch_size
    for first in range(0, len(ids), size):
        settle(ids[first : first + size], now=clock.now(), actor=ACTOR)


def _expect(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise BenchmarkError(f"expected {wanted} {what}, found {found}")


# --- through a whole installation ------------------------------------------------------------

UNDONE = """
    SELECT EXISTS (SELECT 1 FROM automation_event WHERE evaluated_at IS NULL)
        OR EXISTS (SELECT 1 FROM automation_enforcement WHERE ended_at IS NULL)
        OR EXISTS (SELECT 1 FROM orchestrator_execution WHERE ended_at IS NULL)
"""
"""One statement, so one snapshot: nothing moves on unseen between two looks."""


def wait_for_answers(*, within_seconds: float) -> float:
    """Wait until no event, no enforcement and no execution is open; the monotonic time then."""
    until = time.monotonic() + within_seconds
    with connection.cursor() as cursor:
        while True:
            cursor.execute(UNDONE)
            if not cursor.fetchone()[0]:
                return time.monotonic()
            if time.monotonic() > until:
                raise BenchmarkError(f"events not answered within {within_seconds:.0f} s")
            time.sleep(POLL_SECONDS)


def check_answers(*, count: int) -> None:
    """Each event of this run has one enforcement, and that has its execution."""
    _expect("events", Event.objects.count(), count)
    _expect("executed enforcements", Enforcement.objects.filter(state="executed").count(), count)


# --- timers ----------------------------------------------------------------------------------


def install_timers(*, count: int, every_seconds: int) -> None:
    """So many timers that are all due at the same moments, each with a rule that waits for it. The
    rows are written at once: `rules.install` would take a minute for ten thousand."""
    now, interval = clock.now(), TriggerType.objects.get(ref="core.interval")
    known = {"every_seconds": every_seconds, "start_at": now.replace(microsecond=0).isoformat()}
    parameters = [known | {"grace_seconds": number} for number in range(count)]
    with transaction.atomic():
        made = Trigger.objects.bulk_create(
            Trigger(type=interval, parameters=each, digest=triggers.digest_of(each), created_at=now)
            for each in parameters
        )
        due = triggers.schedule_of(made[0]).due(now, now).next_at
        Timer.objects.bulk_create(
            Timer(trigger=each, next_fire_at=due, last_fired_at=now) for each in made
        )
        _install_waiting_rules(made, now)
        Revision.objects.advance()


def _install_waiting_rules(made: Sequence[Trigger], now: datetime) -> None:
    waiting = Rule.objects.bulk_create(
        Rule(ref=f"bench.timer-{each.pk}", trigger=each) for each in made
    )
    revisions = RuleRevision.objects.bulk_create(
        RuleRevision(
            rule=each, number=1, criteria=NEVER, action_ref="core.noop", digest="", made_at=now
        )
        for each in waiting
    )
    for rule, revision in zip(waiting, revisions, strict=True):
        rule.revision = revision
    Rule.objects.bulk_update(waiting, ["revision"], batch_size=BULK)


def burst_seconds(*, count: int, within_seconds: float) -> float:
    """Seconds from the next moment at which all timers are due until all their events are
    committed. Raises BenchmarkError if one is missing or doubled."""
    due = Timer.objects.order_by("next_fire_at").values_list("next_fire_at", flat=True)[0]
    assert due is not None
    until = due + timedelta(seconds=within_seconds)
    time.sleep(max(0.0, (due - clock.now()).total_seconds()))
    left = Timer.objects.due(due)  # a timer moves on in the transaction that records its event
    while left.exists():
        if clock.now() > until:
            raise BenchmarkError(f"{left.count()} timers not fired in {within_seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    seconds = (clock.now() - due).total_seconds()
    _expect("events of timers", Event.objects.filter(occurred_at=due).count(), count)
    return seconds


def lateness_ms(*, seconds: float) -> list[float]:
    """Milliseconds from the time that each tick is due to when another session can see its event,
    of all ticks in so many seconds.

    A trigger of this benchmark's own notifies us of the commit; what it costs is in the figure.
    """
    connection.ensure_connection()
    times_ms = []
    with connection.cursor() as cursor, _recording_trigger():
        cursor.execute("LISTEN bench_recorded")
        link: Any = connection.connection
        for notice in link.notifies(timeout=seconds):
            seen_at = time.time()  # the database is on this machine
            times_ms.append((seen_at - float(notice.payload)) * 1000)
    if not times_ms:
        raise BenchmarkError("no timer fired")
    return times_ms


@contextmanager
def _recording_trigger() -> Iterator[None]:
    table = Event._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE OR REPLACE FUNCTION bench_recorded() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN
                PERFORM pg_notify('bench_recorded', extract(epoch FROM NEW.occurred_at)::text);
                RETURN NULL;
            END $$
            """
        )
        cursor.execute(
            f"CREATE OR REPLACE TRIGGER bench_recorded AFTER INSERT ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION bench_recorded()"
        )
        try:
            yield
        finally:
            cursor.execute(f"DROP TRIGGER bench_recorded ON {table}")


def install_ticking_rules(*, count: int) -> None:
    """Timers of one second, spread over it, that nothing answers."""
    began = clock.now().replace(microsecond=0)
    for number in range(count):
        start_at = began + timedelta(seconds=number / count)
        rule = NewRule(
            ref=f"bench.tick-{number}",
            trigger_type="core.interval",
            trigger_parameters={"every_seconds": 1, "start_at": start_at.isoformat()},
            criteria=NEVER,
            action_ref="core.noop",
        )
        rules.install(rule, now=clock.now())
