"""Muster's side of benchmarks of pages and lists; called by `muster_side`, with its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from benchmarks.remote import BenchmarkError
from orchestrator.core import clock
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.workflows.models import Step, Task, TaskTemplate

RARE = 5
"""The executions of the rare action, worker and reason: the oldest ones."""

CLIENT = "benchmark"
FAILED_SHARE = 100
"""One of so many failed, with a message."""

API = "/api/v1/executions"

OPEN_SHARE = 10
"""One of so many tasks is open, and one of so many entries pending."""
AT_ONCE = 5_000
LIMITS = ("statement_timeout", "lock_timeout")


def vary() -> None:
    """Make some of the filled executions different, past the triggers that protect ends."""
    table = Execution._meta.db_table
    rare = Worker.objects.get_or_create(name="rare")[0]
    oldest = list(Execution.objects.order_by("pk").values_list("pk", flat=True)[:RARE])
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            f"UPDATE {table} SET status = 'failed', reason = 'action_failed', "  # noqa: S608
            """result = '{"message": "could not open /dev/printer7: no such file"}' """
            "WHERE abs(hashtext(id::text)) %% %s = 0",
            [FAILED_SHARE],
        )
        cursor.execute(
            f"UPDATE {table} SET status = 'failed', reason = 'queue_ttl_expired', "  # noqa: S608
            "worker_id = %s, action_ref = 'core.echo' WHERE id = ANY(%s)",
            [rare.pk, oldest],
        )
    _patiently(f"VACUUM (FULL, ANALYZE) {table}")


def fill_others(*, count: int) -> None:
    """Write `count` tasks with two steps each, and as many entries of the DLQ, a second apart: the
    newest of a template, a reason and a state that are common, the oldest five of rare ones."""
    template = TaskTemplate.objects.get(name="linear-2")
    rare = TaskTemplate.objects.get(name="wide-2")
    now = clock.now()
    for first in range(0, count, AT_ONCE):
        tasks, steps, entries = [], [], []
        for n in range(first, min(count, first + AT_ONCE)):
            at = now - timedelta(seconds=n)
            is_rare = n >= count - RARE
            task = _task(rare if is_rare else template, n, at, is_rare=is_rare)
            tasks.append(task)
            steps += _steps(task, at)
            entries.append(_entry(task, n, at, is_rare=is_rare))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("SET LOCAL session_replication_role = replica")
            Task.objects.bulk_create(tasks)
            Step.objects.bulk_create(steps)
            DLQEntry.objects.bulk_create(entries)
    tables = (model._meta.db_table for model in (Task, Step, DLQEntry))
    _patiently(f"VACUUM ANALYZE {', '.join(tables)}")


def _patiently(statement: str) -> None:
    """Execute what takes long, and waits for the services and for the server's own vacuum."""
    with connection.cursor() as cursor:
        for limit in LIMITS:
            cursor.execute(f"SET {limit} = 0")
        cursor.execute(statement)
        for limit in LIMITS:
            cursor.execute(f"RESET {limit}")


def _task(template: TaskTemplate, n: int, at: datetime, *, is_rare: bool) -> Task:
    is_open = n % OPEN_SHARE == 0
    state = "blocked_by_failures" if is_rare else "steps_in_process" if is_open else "complete"
    return Task(
        id=uuid7_floor(at),
        template=template,
        state=state,
        state_entered_at=at,
        clock_started_at=at,
        correlation_id=f"order-{n}",
        created_at=at,
        ended_at=at if state == "complete" else None,
    )


def _steps(task: Task, at: datetime) -> list[Step]:
    is_open = task.state != "complete"
    return [
        Step(
            id=uuid7_floor(at + timedelta(milliseconds=1 + n)),
            task=task,
            name=name,
            template_step=name,
            state="error" if is_open else "complete",
            state_entered_at=at,
            attempts=1,
            max_attempts=3,
            error={"message": "could not open /dev/printer7: no such file"} if is_open else None,
            ended_at=at,
        )
        for n, name in enumerate(("s0", "s1"))
    ]


def _entry(task: Task, n: int, at: datetime, *, is_rare: bool) -> DLQEntry:
    is_pending = n % OPEN_SHARE == 0
    closed = {} if is_pending else {"resolved_at": at, "resolved_by": CLIENT}
    return DLQEntry(
        dlq_reason="poison" if is_rare else "staleness_timeout",
        dlq_timestamp=at,
        subject_kind="task",
        subject_id=task.pk,
        subject_name=task.template.ref,
        detail="steps_in_process for 45.0 min, allowed are 30",
        resolution_status="pending" if is_pending else "manually_resolved",
        **closed,
    )


def _other_lists() -> dict[str, str]:
    """The lists of tasks, steps and entries with their filters, and those that stay short."""
    lists = {
        "entries": ("orchestrator_dlqentry", {
            "all": "", "pending": "resolution_status__exact=pending",
            "closed": "resolution_status__exact=manually_resolved",
            "reason, common": "dlq_reason__exact=staleness_timeout",
            "reason, rare": "dlq_reason__exact=poison",
            "reason, none": "dlq_reason__exact=manual_dlq",
            "search, nothing": "q=nothing-like-it",
        }),
        "queue": ("orchestrator_investigationqueue", {
            "all": "", "reason, none": "dlq_reason__exact=manual_dlq",
        }),
        "tasks": ("workflows_task", {
            "all": "", "state, common": "state=complete", "state, open": "state=open",
            "state, rare": "state=blocked_by_failures", "state, none": "state=cancelled",
            "template, rare": f"template={TaskTemplate.objects.get(name='wide-2').pk}",
            "last hour": "within=1h", "search, name": "q=linear", "search, nothing": "q=nothing",
        }),
        "steps": ("workflows_step", {
            "all": "", "state, common": "state__exact=complete",
            "state, 10 %": "state__exact=error", "state, none": "state__exact=cancelled",
            "kind, none": "kind__exact=decision",
        }),
        "workers": ("orchestrator_worker", {"all": ""}),
        "actions": ("orchestrator_action", {"all": ""}),
        "templates": ("workflows_tasktemplate", {"all": ""}),
        "audit": ("access_auditevent", {"all": ""}),
    }  # fmt: skip
    return {
        f"admin, {name}, {each}": f"{reverse(f'admin:{view}_changelist')}?{query}"
        for name, (view, queries) in lists.items()
        for each, query in queries.items()
    }


def paths() -> dict[str, str]:
    """The addresses that are looked at, by name: of the admin or of the API."""
    admin = reverse("admin:orchestrator_execution_changelist")
    common, rare = "core.noop", "core.echo"
    often = Worker.objects.get(name="w1").pk
    seldom = Worker.objects.get(name="rare").pk
    oldest = Execution.objects.order_by("pk").values_list("pk", flat=True)[:1].get()
    day = f"{timezone.localtime(clock.now()) - timedelta(days=1):%Y-%m-%d}"
    hour_ago = (clock.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    queries = {
        "all": ("", ""),
        "status, common": ("status=completed", "status=completed"),
        "status, 1 %": ("status=failed", "status=failed"),
        "status, open": ("status=open", "open=true"),
        "status, canceling": ("status=canceling", "status=canceling"),
        "status, none": ("status=abandoned", "status=abandoned"),
        "reason, common": ("reason=succeeded", "reason=succeeded"),
        "reason, 1 %": ("reason=action_failed", "reason=action_failed"),
        "reason, rare": ("reason=queue_ttl_expired", "reason=queue_ttl_expired"),
        "reason, none": ("reason=worker_lost", "reason=worker_lost"),
        "worker, common": (f"worker={often}", "worker=w1"),
        "worker, rare": (f"worker={seldom}", "worker=rare"),
        "action, common": (f"action={common}", f"action_ref={common}"),
        "action, rare": (f"action={rare}", f"action_ref={rare}"),
        "worker, rare, of action": (
            f"worker={seldom}&action={common}",
            f"worker=rare&action_ref={common}",
        ),
        "status, none, of action": (
            f"status=abandoned&action={common}",
            f"status=abandoned&action_ref={common}",
        ),
        "last hour": ("within=1h", f"created_after={hour_ago}"),
    }
    looked_at = {f"admin, {name}": f"{admin}?{each}" for name, (each, _) in queries.items()}
    looked_at |= {
        "admin, dashboard": reverse("admin:index"),
        "admin, one": reverse("admin:orchestrator_execution_change", args=[oldest]),
        "admin, search, word": f"{admin}?q=noop",
        "admin, search, id": f"{admin}?q={oldest}",
        "admin, search, nothing": f"{admin}?q=nothing-like-it",
        "admin, pack": f"{admin}?pack=core",
        "admin, yesterday": f"{admin}?created_at_from_0={day}&created_at_to_0={day}",
    }
    looked_at |= _other_lists()
    looked_at |= {f"api, {name}": f"{API}?{each}" for name, (_, each) in queries.items()}
    return looked_at | {"api, one": f"{API}/{oldest}"}


def look(*, count: int, token: str) -> dict[str, tuple[list[float], int]]:
    """The milliseconds of each of `count` answers, and the statements of one, by what is looked
    at. They are those of the server: the requests are made in this process."""
    measured = {}
    client, headers = _browser(), {"Authorization": f"Bearer {token}"}
    for name, path in paths().items():
        ask = _asking(client, path, headers)
        ask()
        measured[name] = [_timed(ask) for _ in range(count)], _statements(ask)
    return measured


def _browser() -> Client:
    """That of an administrator who is logged in."""
    user, _ = get_user_model().objects.get_or_create(
        username="bench", defaults={"is_staff": True, "is_superuser": True}
    )
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(user)
    return client


def _asking(client: Client, path: str, headers: Mapping[str, str]) -> Callable[[], None]:
    own: Any = headers if path.startswith(API) else {}

    def ask() -> None:
        answer = client.get(path, headers=own)
        if answer.status_code != 200:
            raise BenchmarkError(f"GET {path}: {answer.status_code}: {answer.content[:300]!r}")

    return ask


def _timed(ask: Callable[[], None]) -> float:
    asked_at = time.perf_counter()
    ask()
    return (time.perf_counter() - asked_at) * 1e3


def _statements(ask: Callable[[], None]) -> int:
    number = 0

    def counted(execute: Any, *arguments: Any) -> Any:
        nonlocal number
        number += 1
        return execute(*arguments)

    with connection.execute_wrapper(counted):
        ask()
    return number
