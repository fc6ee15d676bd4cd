"""Rows for the console's pages to show, beside those of `pages_side`: a fleet at work, a task of a
thousand steps, numbers and causes of what ended, and lists that are longer than a page."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from benchmarks import automation_side, pages_side, stream_side, workflow_side
from orchestrator.access.models import Key
from orchestrator.automation import matching, triggers
from orchestrator.automation.models import Event
from orchestrator.automation.sensors import catalogue
from orchestrator.automation.sensors.catalogue import NewSensor
from orchestrator.bulk.models import BulkOrder
from orchestrator.core import clock
from orchestrator.core.authority import Asker
from orchestrator.core.models import (
    Action,
    DLQEntry,
    Execution,
    ExecutionEvent,
    Pack,
    Service,
    Tick,
    Worker,
)
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.inquiries import asking, questions
from orchestrator.inquiries.asking import Asked
from orchestrator.policies import changes as policies
from orchestrator.policies import definitions as policy_definitions
from orchestrator.queues.models import WorkQueue
from orchestrator.rollups import causes, minutes
from orchestrator.rollups.models import (
    SPANS,
    Arrivals,
    Durations,
    Failure,
    FailureCount,
    FailureGroup,
    Mark,
)
from orchestrator.workflows.models import Step, StepDependency, StepExecution, Task, TaskTemplate

ACTION = "core.noop"
ALIVE = (Service.Kind.EXECUTOR, Service.Kind.BEAT)
"""Services that the pages would miss."""
SLOTS = 8
RUN_FOR = timedelta(days=1)
"""So long, at the most, do the executions at workers still run: none is overdue meanwhile."""

STEPS = 1_000
LAYER = 50
"""Steps of one layer; each waits for two of the layer before."""

LONGER_THAN_A_PAGE = 60
CAUSES = 60
EVENTS = 400
ENTRIES = 5
"""Of the DLQ, of each cause."""
AT_ONCE = 5_000

SPAN_START = "date_bin(make_interval(mins => %(minutes)s), {at}, timestamptz '2000-01-01 00:00+00')"


def fill_console(*, workers: int) -> None:
    """Write all of it. Executions that ended are there, and what `pages_side` writes."""
    now = clock.now()
    _in_order(now)
    fill_fleet(number=workers, now=now)
    fill_numbers(now=now)
    fill_large_task(now=now)
    fill_short_lists(now=now)
    pages_side._patiently("VACUUM ANALYZE")


def keep_alive() -> None:
    """Let workers and services be heard of now, as if each had renewed its life."""
    now = clock.now()
    Worker.objects.filter(status=Worker.Status.ACTIVE).update(heartbeat_at=now)
    Service.objects.filter(kind__in=ALIVE).update(seen_at=now)
    Tick.objects.update_or_create(name="muster.check_timeouts", defaults={"ran_at": now})
    Mark.objects.update(read_until=now)


def _in_order(now: datetime) -> None:
    """Services that live, in place of those that made the first execution and were ended."""
    Service.objects.all().delete()
    Worker.objects.update(status=Worker.Status.INACTIVE, gone_at=now)
    for kind in ALIVE:
        Service.objects.create(
            kind=kind, name=kind, host="node-0", pid=1, started_at=now, seen_at=now
        )


# --- the fleet -----------------------------------------------------------------------------------


def fill_fleet(*, number: int, now: datetime) -> None:
    """Workers of eight slots, each of which runs something."""
    made = Worker.objects.bulk_create(
        Worker(
            name=f"node-{n:04}",
            host=f"host-{n // 10:03}",
            labels={"zone": "abcd"[n % 4]},
            incarnation=1,
            status=Worker.Status.ACTIVE,
            capacity=SLOTS,
            runtimes=["python", "shell"],
            registered_at=now,
            heartbeat_at=now,
        )
        for n in range(number)
    )
    action = Action.objects.get(ref=ACTION)
    with _past_triggers():
        for first in range(0, number, AT_ONCE // SLOTS):
            some = made[first : first + AT_ONCE // SLOTS]
            Execution.objects.bulk_create(_running(action, worker, now) for worker in some * SLOTS)


def _running(action: Action, worker: Worker, now: datetime) -> Execution:
    return Execution(
        action=action,
        action_ref=action.ref,
        status="running",
        worker=worker,
        worker_incarnation=1,
        attempt=1,
        timeout_seconds=RUN_FOR.total_seconds(),
        created_at=now - timedelta(seconds=5),
        scheduled_at=now - timedelta(seconds=4),
        start_by=now + RUN_FOR,
        started_at=now - timedelta(seconds=3),
        run_deadline_at=now + RUN_FOR,
        deadline_at=now + RUN_FOR,
    )


@contextmanager
def _past_triggers() -> Iterator[None]:
    """A transaction that may take long, and in which no trigger runs."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("SET LOCAL session_replication_role = replica")
        yield


# --- numbers and causes --------------------------------------------------------------------------


def fill_numbers(*, now: datetime) -> None:
    """The sums and the causes of all executions, as if their histories had been read."""
    last = ExecutionEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    with _past_triggers():
        for minutes_of_span in SPANS:
            _fill_span(minutes_of_span)
        _fill_causes(now)
    for name in (minutes.NAME, causes.NAME):
        read = {"read_to": last, "seen_to": last, "read_until": now, "seen_at": now}
        Mark.objects.update_or_create(name=name, defaults=read)


def _fill_span(length: int) -> None:
    executions, arrivals = Execution._meta.db_table, Arrivals._meta.db_table
    ended, started = SPAN_START.format(at="ended_at"), SPAN_START.format(at="started_at")
    took = "extract(epoch FROM started_at - created_at)"
    statements = (
        f"""
        INSERT INTO {arrivals} (minutes, start, action_ref, to_status, reason, count)
        SELECT %(minutes)s, {ended}, action_ref, status, reason, count(*)
        FROM {executions} WHERE ended_at IS NOT NULL
        GROUP BY 2, action_ref, status, reason ON CONFLICT DO NOTHING
        """,  # noqa: S608 - our own models' tables
        f"""
        INSERT INTO {arrivals} (minutes, start, action_ref, to_status, reason, count)
        SELECT %(minutes)s, {started}, action_ref, 'running', '', count(*)
        FROM {executions} WHERE started_at IS NOT NULL
        GROUP BY 2, action_ref ON CONFLICT DO NOTHING
        """,  # noqa: S608 - our own models' tables
        f"""
        INSERT INTO {Durations._meta.db_table}
            (minutes, start, action_ref, to_status, bucket, count, seconds)
        SELECT %(minutes)s, {started}, action_ref, 'running',
            width_bucket({took}::float, %(bounds)s::float[]), count(*), sum({took})
        FROM {executions} WHERE started_at IS NOT NULL
        GROUP BY 2, action_ref, 5 ON CONFLICT DO NOTHING
        """,  # noqa: S608 - our own models' tables
    )
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(
                statement, {"minutes": length, "bounds": [float(bound) for bound in minutes.BOUNDS]}
            )


def _fill_causes(now: datetime) -> None:
    """Each failure belongs to one of some causes, by chance."""
    groups = FailureGroup.objects.bulk_create(
        FailureGroup(
            digest=hashlib.sha256(f"{number}".encode()).hexdigest(),
            action_ref=ACTION,
            reason="action_failed",
            sample=f"could not open /dev/{_word(number)}<n>: no such file",
            first=now,
            last=now,
            count=0,
        )
        for number in range(CAUSES)
    )
    failures, counts = Failure._meta.db_table, FailureCount._meta.db_table
    start = SPAN_START.format(at="at")
    statements = (
        f"""
        INSERT INTO {failures} (execution_id, group_id, worker_id, at)
        SELECT id, (%(ids)s::bigint[])[1 + abs(hashtext(id::text || 'cause')) %% %(causes)s],
            worker_id, ended_at
        FROM {Execution._meta.db_table} WHERE status = 'failed'
        """,  # noqa: S608 - our own models' tables
        f"""
        INSERT INTO {counts} (group_id, start, count)
        SELECT group_id, {start}, count(*) FROM {failures} GROUP BY group_id, 2
        """,  # noqa: S608 - our own models' tables
        f"""
        UPDATE {FailureGroup._meta.db_table} AS cause
        SET count = found.number, first = found.first, last = found.last
        FROM (SELECT group_id, count(*) AS number, min(at) AS first, max(at) AS last
            FROM {failures} GROUP BY group_id) AS found
        WHERE found.group_id = cause.id
        """,  # noqa: S608 - our own models' tables
    )
    values: dict[str, Any] = {
        "ids": [group.pk for group in groups],
        "causes": CAUSES,
        "minutes": 15,
    }
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement, values)


def _word(number: int) -> str:
    """Letters only: a number would be no part of a pattern."""
    return "printer-" + "".join(chr(ord("a") + int(digit)) for digit in str(number))


# --- tasks ---------------------------------------------------------------------------------------


def fill_large_task(*, now: datetime) -> None:
    """A task of a thousand steps in layers, each tried once."""
    template = TaskTemplate.objects.get(name="linear-2")
    action = Action.objects.get(ref=ACTION)
    task = Task.objects.create(
        template=template,
        state="steps_in_process",
        state_entered_at=now,
        clock_started_at=now,
        correlation_id="large",
        created_at=now - timedelta(seconds=STEPS),
    )
    steps = [_step(task, number, now) for number in range(STEPS)]
    runs = [_run(action, number, now) for number in range(STEPS)]
    with _past_triggers():
        Step.objects.bulk_create(steps)
        StepDependency.objects.bulk_create(
            StepDependency(parent=steps[parent], child=steps[child]) for parent, child in _edges()
        )
        Execution.objects.bulk_create(runs)
        StepExecution.objects.bulk_create(
            StepExecution(step=step, execution=run, fence=1)
            for step, run in zip(steps, runs, strict=True)
        )


def _step(task: Task, number: int, now: datetime) -> Step:
    return Step(
        task=task,
        name=f"step_{number:04}",
        template_step=f"s{number}",
        state="complete",
        state_entered_at=now,
        ended_at=now,
        attempts=1,
    )


def _run(action: Action, number: int, now: datetime) -> Execution:
    began = now - timedelta(seconds=STEPS - number)
    return Execution(
        id=uuid7_floor(began),
        action=action,
        action_ref=action.ref,
        status="completed",
        reason="succeeded",
        timeout_seconds=60,
        attempt=1,
        created_at=began,
        started_at=began + timedelta(milliseconds=300),
        ended_at=began + timedelta(seconds=2),
        deadline_at=now + RUN_FOR,
    )


def _edges() -> Iterator[tuple[int, int]]:
    for child in range(LAYER, STEPS):
        layer = (child // LAYER - 1) * LAYER
        for parent in (0, 1):
            yield layer + (child * 7 + parent * 11) % LAYER, child


def large_task() -> Task:
    return Task.objects.filter(correlation_id="large").latest("pk")


# --- lists that stay short -----------------------------------------------------------------------


def fill_short_lists(*, now: datetime) -> None:
    """Somewhat more than a page of everything else that has a list."""
    automation_side.install_alert_rules(rules_count=LONGER_THAN_A_PAGE)
    automation_side.record_events(count=EVENTS, kinds=LONGER_THAN_A_PAGE)
    ids = list(Event.objects.order_by("pk").values_list("pk", flat=True))
    automation_side._in_batches(ids, matching.match)
    workflow_side.install_templates(sizes=list(range(3, 3 + LONGER_THAN_A_PAGE // 2)))
    stream_side.make_listeners(number=LONGER_THAN_A_PAGE)
    triggers.ensure("core.webhook", {"path": "bench", "profile": "token"}, now=now)
    DLQEntry.objects.bulk_create(
        _entry(number, now) for number in range(LONGER_THAN_A_PAGE) for _ in range(ENTRIES)
    )
    for number in range(LONGER_THAN_A_PAGE):
        _fill_each(number, now)
    pack = Pack.objects.get(name="bench")
    sensors = [
        NewSensor(
            ref=f"bench.sensor-{number}",
            runtime="python",
            entry_point="sensors:Sensor",
            trigger_types=[automation_side.TYPE],
        )
        for number in range(LONGER_THAN_A_PAGE)
    ]
    catalogue.install_all(sensors, pack=pack, now=now)


def _entry(number: int, now: datetime) -> DLQEntry:
    """One of a cause of its own; older, and so more urgent, than those of tasks."""
    return DLQEntry(
        dlq_reason="max_retries_exceeded",
        dlq_timestamp=now - timedelta(days=3),
        subject_kind="task",
        subject_id=uuid.uuid4(),
        subject_name=f"shop/{_word(number)}/1",
        detail=f"charge: declined for {number}",
        opened_by="executor",
    )


def _fill_each(number: int, now: datetime) -> None:
    name = f"bench-{number:02}"
    question = questions.read({"prompt": f"May release {number} go out?"})
    asker = Asker("user:bench", 1)
    asking.ask(question, asked=Asked(by=asker, pack="core", purpose=name), now=now)
    limit = {"ref": name, "kind": "concurrency", "scope": "action", "target": ACTION}
    policies.create(policy_definitions.of_document(limit | {"limit": 10}), now=now)
    WorkQueue.objects.create(name=name, created_at=now, updated_at=now)
    common = {"created_at": now, "created_by": "bench", "changed_at": now, "changed_by": "bench"}
    Key.objects.create(scope="pack", owner="core", name=name, **common)
    BulkOrder.objects.create(
        verb="cancel",
        query=f"status:open action:core.{name}",
        reason="the printer burns",
        ordered_by="user:bench",
        key_owner=1,
        grants=[],
        state="done",
        matched=1_000,
        position=1_000,
        created_at=now,
        started_at=now,
        worked_at=now,
        ended_at=now,
        ended_by="executor",
    )
