"""The rights of each service to the tables of workflows; workers have none.

Who repairs a step advances its task, so the API adds what the executor adds. Executors prune.
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

TABLES = (
    TableRights(
        table="workflows_tasktemplate",
        api=CHANGE,
        executor=READ,
        notifier=Rights(read=("id", "namespace")),
    ),
    TableRights(
        table="workflows_task",
        api=CHANGE,
        executor=ALL,
        notifier=Rights(read=("id", "template_id", "requested_by")),
    ),
    TableRights(table="workflows_step", api=CHANGE, executor=ALL),
    TableRights(table="workflows_stepdependency", api=ADD, executor=ADD_AND_REMOVE),
    TableRights(table="workflows_stepexecution", api=ADD, executor=ADD_AND_REMOVE),
    TableRights(
        table="workflows_transitionrecord",
        api=ADD,
        executor=ADD_AND_REMOVE,
        notifier=Rights(read=("id", "task_id", "step_id", "to_state", "at")),
    ),
    TableRights(table="workflows_stalenessdefault", api=READ, executor=CHANGE),
    TableRights(table="v_task_staleness_limits", api=READ, executor=READ),
    TableRights(table="v_task_state_analysis", api=READ, executor=READ),
    TableRights(table="v_task_staleness_monitoring", api=READ, executor=READ),
)
