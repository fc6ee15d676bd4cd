"""The rights of each service to the tables of rollups: executors sum, the API reads."""

from __future__ import annotations

from orchestrator.core.frame import ALL, CHANGE, READ, TableRights

TABLES = (
    TableRights(table="rollups_mark", api=READ, executor=CHANGE),
    TableRights(table="rollups_arrivals", api=READ, executor=ALL),
    TableRights(table="rollups_durations", api=READ, executor=ALL),
    TableRights(table="rollups_failuregroup", api=READ, executor=ALL),
    TableRights(table="rollups_failurecount", api=READ, executor=ALL),
    TableRights(table="rollups_failure", api=READ, executor=ALL),
)
