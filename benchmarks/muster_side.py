"""Muster's side of a benchmark, in a process with an installation's settings.

It stands for an API process: it accepts executions and publishes in the background as the API
does. Correctness is on, as anywhere: fences, history, confirms, persistent messages.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import django.conf

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings.base")
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402

from benchmarks import stamps  # noqa: E402
from benchmarks.automation_side import (  # noqa: E402, F401 - called by name
    burst_seconds,
    check_answers,
    install_alert_rules,
    install_ticking_rules,
    install_timers,
    lateness_ms,
    record_events,
    stages_per_second,
    wait_for_answers,
)
from benchmarks.console_fill import (  # noqa: E402, F401 - called by name
    fill_console,
    keep_alive,
)
from benchmarks.console_side import (  # noqa: E402, F401 - called by name
    backend,
    console_paths,
    first_visit,
    live_steadily,
    load_pages,
    log_in,
    look_at_console,
    topics_of,
)
from benchmarks.pages_side import fill_others, look, vary  # noqa: E402, F401 - called by name
from benchmarks.remote import BenchmarkError  # noqa: E402
from benchmarks.soak_side import (  # noqa: E402, F401 - called by name
    begin_soak,
    database_bytes,
    open_executions,
    soak,
    table_rows,
)
from benchmarks.stream_side import (  # noqa: E402, F401 - called by name
    accept_of_owners,
    cancel_steadily,
    make_listeners,
    tell_nobody,
)
from benchmarks.workflow_side import (  # noqa: E402, F401 - called by name
    advance_cost,
    install_templates,
    run_tasks,
)
from orchestrator.automation.models import Enforcement, Event  # noqa: E402
from orchestrator.core import (  # noqa: E402
    brokers,
    clock,
    dead_letters,
    executions,
    fleet,
    garbage,
    isolation,
    messages,
    packs,
    relay,
    topology,
)
from orchestrator.core.models import (  # noqa: E402
    DLQEntry,
    DLQEntryEvent,
    Execution,
    ExecutionEvent,
    Worker,
)
from orchestrator.core.states import TERMINAL  # noqa: E402
from orchestrator.policies import changes as policies  # noqa: E402
from orchestrator.policies import definitions as policy_definitions  # noqa: E402

garbage.settle()

ROOT = Path(__file__).resolve().parents[1]
PACKS = (ROOT / "packs" / "core", ROOT / "benchmarks" / "pack")
CLIENT = "benchmark"
BULK = 1_000
"""Executions of one bulk request: the API's limit."""

FILL_AT_ONCE = 100_000

NOOP = executions.NewExecution(
    action_ref="bench.noop" if isolation.least() == isolation.TRUSTED else "core.noop"
)

_marker: dict[str, Any] = {"execution": None, "event": 0}


def prepare() -> None:
    """Make the tables and install the packs."""
    call_command("migrate", verbosity=0)
    for path in PACKS:
        packs.install(packs.load(path), now=clock.now())


def limit(*, most: int) -> None:
    """Have no more than this run at once, over everything."""
    values = {"ref": "most", "kind": "concurrency", "scope": "global", "limit": most}
    policies.create(policy_definitions.of_document(values), now=clock.now())


# --- one run ---------------------------------------------------------------------------------


def begin(*, keep: bool = False) -> None:
    """Before a run: empty tables, or with `keep` a mark behind what is there."""
    if not keep:
        _empty_tables()
    newest = Execution.objects.order_by("-pk").values_list("pk", flat=True).first()
    event = ExecutionEvent.objects.order_by("-pk").values_list("pk", flat=True).first()
    _marker.update(execution=newest, event=event or 0)


def submit(*, count: int, bulk: bool) -> None:
    """Ask for `count` executions that do nothing."""
    if not bulk:
        for _ in range(count):
            executions.request(NOOP, requested_by=CLIENT, now=clock.now())
        return
    for first in range(0, count, BULK):
        news = [NOOP] * min(BULK, count - first)
        executions.request_many(news, requested_by=CLIENT, now=clock.now())


def is_finished(*, count: int) -> bool:
    """Return True if nothing is open. Every submission has returned, so all `count` have their
    rows."""
    with connection.cursor() as cursor:  # not through the ORM: it is asked fifty times a second
        cursor.execute("SELECT 1 FROM orchestrator_execution WHERE ended_at IS NULL LIMIT 1")
        return cursor.fetchone() is None


def check(*, count: int) -> None:
    """Every execution of this run completed, with exactly one terminal history event, and was
    scheduled and claimed once. Raises BenchmarkError."""
    rows = Execution.objects.all()
    if _marker["execution"] is not None:
        rows = rows.filter(pk__gt=_marker["execution"])
    events = ExecutionEvent.objects.filter(pk__gt=_marker["event"])
    ended = events.filter(to_status__in=sorted(TERMINAL))
    found = {
        "executions": rows.count(),
        "completed": rows.filter(status="completed").count(),
        "terminal events": ended.count(),
        "executions with a terminal event": ended.values("execution_id").distinct().count(),
        "schedules": events.filter(event="schedule").count(),
        "claims": events.filter(event="claim").count(),
    }
    wrong = {what: number for what, number in found.items() if number != count}
    if wrong:
        raise BenchmarkError(f"expected {count} of each, found {wrong}")


def _empty_tables() -> None:
    """Empty the tables of executions and of events, past the triggers that protect ends and
    histories."""
    emptied = (Enforcement, Event, DLQEntryEvent, DLQEntry, ExecutionEvent, Execution)
    tables = [model._meta.db_table for model in emptied]
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(f"TRUNCATE {', '.join(tables)} CASCADE")  # steps refer to them
            return
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {name}")
        for table in tables:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - our own models' tables
        for _, statement in triggers:
            cursor.execute(statement)


def old_executions() -> int:
    """The executions of more than two hours ago."""
    return Execution.objects.filter(created_at__lt=clock.now() - timedelta(hours=2)).count()


# --- over HTTP --------------------------------------------------------------------------------


def make_token() -> str:
    """The token of somebody who may run actions."""
    call_command("access", "create", CLIENT, stdout=io.StringIO())
    call_command("access", "grant", f"service:{CLIENT}", "operator", stdout=io.StringIO())
    written = io.StringIO()
    call_command("token", "create", CLIENT, "--json", stdout=written)
    token: str = json.loads(written.getvalue())["token"]
    return token


def hour_ago() -> str:
    """In a query of the API."""
    return (clock.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def some_execution() -> str:
    return str(Execution.objects.values_list("pk", flat=True).latest("pk"))


# --- how long one takes ----------------------------------------------------------------------


def starts(*, count: int) -> list[float]:
    """Milliseconds from the call that submits one execution to the start of its action, each
    on an idle installation."""
    with stamps.Receiver() as receiver:
        stamp = executions.NewExecution(
            action_ref="bench.stamp", parameters={"address": receiver.address}
        )

        def one() -> int:
            executions.request(stamp, requested_by=CLIENT, now=clock.now())
            return receiver.receive()

        return stamps.timed(one, count)


def ends(*, count: int) -> list[float]:
    """Milliseconds from the call that submits one execution to its terminal status, committed.

    A trigger of this benchmark's own notifies us of the commit: polling would take the processor
    away from what is measured. What the trigger costs is in the figure.
    """
    connection.ensure_connection()
    with connection.cursor() as cursor, _terminal_trigger():
        cursor.execute("LISTEN bench_ended")
        link: Any = connection.connection

        def one() -> int:
            executions.request(NOOP, requested_by=CLIENT, now=clock.now())
            for _ in link.notifies(timeout=stamps.PATIENCE_SECONDS, stop_after=1):
                return time.monotonic_ns()
            raise BenchmarkError("no execution ended")

        return stamps.timed(one, count)


@contextmanager
def _terminal_trigger() -> Iterator[None]:
    table = Execution._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE OR REPLACE FUNCTION bench_ended() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_notify('bench_ended', NEW.id::text); RETURN NULL; END $$
            """
        )
        cursor.execute(
            f"CREATE OR REPLACE TRIGGER bench_ended AFTER UPDATE ON {table} FOR EACH ROW "
            "WHEN (NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL) "
            "EXECUTE FUNCTION bench_ended()"
        )
        try:
            yield
        finally:
            cursor.execute(f"DROP TRIGGER bench_ended ON {table}")


# --- dead letters ----------------------------------------------------------------------------


def dead_letters_per_second(*, count: int) -> float:
    """Dispatch to a worker that is not there, let the TTL pass, and time the drain."""
    begin()
    worker_id = _pretend_workers(1, capacity=count)[0]
    _schedule(count)
    with brokers.connection() as link:
        channel: Any = link.default_channel
        name = topology.worker_queue(worker_id).name
        until = time.monotonic() + 60
        while channel.queue_declare(name, passive=True).message_count:
            if time.monotonic() > until:
                raise BenchmarkError("the messages did not expire")
            time.sleep(0.1)
    started = time.perf_counter()
    drained = dead_letters.drain()
    elapsed = time.perf_counter() - started
    found = {
        "settled": drained.settled,
        "failed": Execution.objects.filter(status="failed", worker=worker_id).count(),
        "entries": DLQEntry.objects.count(),
        "terminal events": ExecutionEvent.objects.filter(to_status="failed").count(),
    }
    if set(found.values()) != {count}:
        raise BenchmarkError(f"expected {count} of each, found {found}")
    return count / elapsed


# --- the size of the fleet -------------------------------------------------------------------


def schedule_cost_ms(*, workers: int, count: int) -> tuple[float, float]:
    """Milliseconds for each execution that it takes to schedule `count` over so many workers,
    messages sent and confirmed: (by the clock, of this process's processor time)."""
    begin()
    worker_ids = _pretend_workers(workers, capacity=max(1, count // workers))
    elapsed, processor = _schedule(count)
    with brokers.connection() as link:
        channel: Any = link.default_channel
        queued = sum(_attempts_in(channel, topology.worker_queue(id).name) for id in worker_ids)
        channel.queue_purge(topology.requests_queue().name)
    if queued != count:
        raise BenchmarkError(f"scheduled {count}, found {queued} in the workers' queues")
    return elapsed * 1000 / count, processor * 1000 / count


def _attempts_in(channel: Any, queue: str) -> int:
    """Empty a worker's queue; returns how many attempts its messages listed."""
    attempts = 0
    while message := channel.basic_get(queue, no_ack=True):
        attempts += len(messages.dispatched(json.loads(message.body)[1]))
    return attempts


def _pretend_workers(number: int, *, capacity: int) -> list[int]:
    """Rows of so many workers that are up, with their queues; nobody consumes these."""
    names = [f"pretended-{n}" for n in range(number)]
    Worker.objects.bulk_create([Worker(name=name) for name in names], ignore_conflicts=True)
    Worker.objects.update(status=Worker.Status.INACTIVE)
    mine = Worker.objects.filter(name__in=names)
    mine.update(
        status=Worker.Status.ACTIVE,
        heartbeat_at=clock.now(),
        capacity=capacity,
        runtimes=["python", "shell"],
    )
    ids = list(mine.values_list("pk", flat=True))
    with brokers.connection() as link:
        specs = [topology.requests_queue(), *(topology.worker_queue(id) for id in ids)]
        topology.declare(link.default_channel, specs)
    return ids


def _schedule(count: int) -> tuple[float, float]:
    """Accept `count` and schedule them in batches, as an executor does; returns the seconds of
    scheduling, by the clock and of processor time."""
    ids = []
    for first in range(0, count, BULK):
        news = [NOOP] * min(BULK, count - first)
        rows = executions.request_many(news, requested_by=CLIENT, now=clock.now())
        ids += [row.pk for row in rows]
    relay.flush()
    # accepting them may have taken longer than a heartbeat counts
    Worker.objects.filter(status=Worker.Status.ACTIVE).update(heartbeat_at=clock.now())
    placement = fleet.Placement()
    size = django.conf.settings.MUSTER.batch_size
    started, worked = time.perf_counter(), time.process_time()
    for first in range(0, count, size):
        batch = ids[first : first + size]
        executions.schedule(batch, placement=placement, now=clock.now(), actor=CLIENT)
    elapsed, processor = time.perf_counter() - started, time.process_time() - worked
    scheduled = Execution.objects.filter(status="scheduled").count()
    if scheduled != count:
        raise BenchmarkError(f"expected {count} scheduled, found {scheduled}")
    return elapsed, processor


# --- a long history --------------------------------------------------------------------------


def fill(*, count: int) -> None:
    """Write `count` copies of the newest execution and of its history, each 0.2 s older than the
    one before, as if they had run."""
    executions_table, events_table = Execution._meta.db_table, ExecutionEvent._meta.db_table
    model = Execution.objects.latest("pk")
    copied = {
        str(field.column): f"{field.column} - earlier"
        if isinstance(field, models.DateTimeField)
        else str(field.column)
        for field in Execution._meta.concrete_fields
        if not field.primary_key
    }
    about = [
        str(field.column)
        for field in ExecutionEvent._meta.concrete_fields
        if field.column not in ("id", "execution_id", "at")
    ]
    statement = f"""
        WITH copies AS (
            INSERT INTO {executions_table} (id, {", ".join(copied)})
            SELECT
                -- time-ordered ids, as they would be
                (lpad(to_hex((extract(epoch FROM created_at - earlier) * 1000)::bigint), 12, '0')
                    || '7' || substr(md5(n::text), 1, 3)
                    || 'a' || substr(md5(n::text), 4, 15))::uuid,
                {", ".join(copied.values())}
            FROM {executions_table},
                generate_series(%(first)s, %(last)s) AS n,
                LATERAL (SELECT n * interval '0.2 s' AS earlier) AS times
            WHERE id = %(model)s
            RETURNING id, created_at
        )
        INSERT INTO {events_table} (execution_id, at, {", ".join(about)})
        SELECT copies.id, at - (%(accepted)s - copies.created_at), {", ".join(about)}
        FROM copies, {events_table} AS event
        WHERE event.execution_id = %(model)s
    """  # noqa: S608 - our own models' tables
    for first in range(1, count + 1, FILL_AT_ONCE):
        last = min(count, first + FILL_AT_ONCE - 1)
        values: dict[str, Any] = {
            "first": first,
            "last": last,
            "model": model.pk,
            "accepted": model.created_at,
        }
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger per row
            cursor.execute(statement, values)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(f"VACUUM ANALYZE {executions_table}, {events_table}")
        cursor.execute("RESET statement_timeout")
