"""The rights of each service to the tables of core, of Django's content types, and of beat.

A worker reads and writes what claim, finish, heartbeat and its registration need. Nobody but the
owner changes history, and only executors remove it: they prune, see `retention`.
"""

from __future__ import annotations

from orchestrator.core.frame import (
    ADD,
    ADD_AND_REMOVE,
    ALL,
    CHANGE,
    READ,
    Rights,
    TableRights,
)

WRITTEN_BY_WORKERS = (
    "status",
    "attempt",
    "retry_count",
    "lane",
    "lost_workers",
    "worker_incarnation",
    "start_by",
    "run_deadline_at",
    "next_retry_at",
    "reason",
    "result",
    "started_at",
    "ended_at",
)
"""Columns of executions that claims and ends set."""

OWN_TO_WORKERS = (
    "incarnation",
    "status",
    "status_reason",
    "failed_checks",
    "capacity",
    "runtimes",
    "isolation",
    "labels",
    "missing_code",
    "queues",
    "queue_pauses",
    "registered_at",
    "heartbeat_at",
    "gone_at",
    "retired_at",
    "host",
    "pid",
    "version",
)
"""Columns that a worker writes to its row: all but its name and an operator's cordon."""

SCHEDULE = (
    "clockedschedule",
    "crontabschedule",
    "intervalschedule",
    "periodictask",
    "periodictasks",
    "solarschedule",
)

TABLES = (
    # the API installs and removes packs
    TableRights(table="orchestrator_pack", api=CHANGE, executor=READ, worker=READ),
    TableRights(table="orchestrator_action", api=CHANGE, executor=READ, worker=READ),
    # executors remove what nothing needs any more
    TableRights(
        table="orchestrator_release",
        api=CHANGE,
        executor=Rights(read=True, change=("content_gone_at",)),
        worker=READ,
    ),
    TableRights(table="orchestrator_releaseaction", api=ADD, executor=READ, worker=READ),
    TableRights(
        table="orchestrator_releasechunk",
        api=ADD_AND_REMOVE,
        executor=Rights(read=True, remove=True),
        worker=READ,
    ),
    TableRights(
        table="orchestrator_execution",
        api=CHANGE,
        executor=ALL,
        worker=Rights(
            read=True,
            hidden=("result", "requested_by", "idempotency_key"),
            change=WRITTEN_BY_WORKERS,
        ),
        notifier=Rights(read=("id", "action_ref", "requested_by")),
    ),
    TableRights(
        table="orchestrator_executionevent",
        api=ADD,
        executor=ADD_AND_REMOVE,
        # it counts deferrals, and asks whether it has recorded an end
        worker=Rights(add=True, read=("execution_id", "event", "attempt", "actor")),
        notifier=Rights(read=("id", "execution_id", "to_status", "at")),
    ),
    TableRights(
        table="orchestrator_worker",
        api=Rights(read=True, change=True),
        executor=Rights(read=True, change=True, remove=True),
        worker=Rights(read=True, add=True, change=OWN_TO_WORKERS),
        notifier=Rights(read=("id", "name", "labels", "status", "cordoned", "retired_at")),
    ),
    TableRights(
        table="orchestrator_workerevent",
        api=ADD,
        executor=ADD_AND_REMOVE,
        # the id, which an INSERT returns
        worker=Rights(add=True, read=("id",)),
    ),
    TableRights(
        table="orchestrator_dlqentry",
        api=CHANGE,
        executor=ALL,
        worker=Rights(add=True, read=("id", "dlq_entry_uuid")),
        notifier=Rights(
            read=("id", "subject_kind", "subject_name", "opened_by", "resolution_status")
        ),
    ),
    TableRights(
        table="orchestrator_dlqentryevent",
        api=ADD,
        executor=ADD_AND_REMOVE,
        # the id, which an INSERT returns
        worker=Rights(add=True, read=("id",)),
    ),
    TableRights(table="orchestrator_pruning", executor=ADD_AND_REMOVE),
    TableRights(table="v_dlq_dashboard", api=READ, executor=READ),
    TableRights(table="v_dlq_investigation_queue", api=READ, executor=READ),
    TableRights(
        table="orchestrator_tally", api=CHANGE, executor=CHANGE, worker=CHANGE, notifier=CHANGE
    ),
    TableRights(table="orchestrator_historymark", api=READ, executor=CHANGE),
    TableRights(table="orchestrator_tick", api=READ, executor=CHANGE),
    # each renews its own; executors remove what is over
    TableRights(
        table="orchestrator_service",
        api=CHANGE,
        executor=ALL,
        beat=CHANGE,
        notifier=CHANGE,
    ),
    TableRights(table="orchestrator_savedsearch", api=ALL),
    TableRights(table="orchestrator_tracecontext", api=ADD, executor=ADD_AND_REMOVE, worker=READ),
    # an executor prunes them, and whoever locks a row needs the right to change it
    TableRights(table="orchestrator_outputchunk", api=READ, executor=ALL, worker=ADD_AND_REMOVE),
    TableRights(table="django_migrations"),
    TableRights(table="django_content_type", api=READ),
    *(
        TableRights(table=f"django_celery_beat_{name}", api=ALL, executor=READ, beat=CHANGE)
        for name in SCHEDULE
    ),
)
