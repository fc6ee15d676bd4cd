"""The rights of each service to the tables of queues.

The API changes queues. Executors take messages in and answer them. A worker reads the queues that
it serves.
"""

from __future__ import annotations

from orchestrator.core.frame import ADD, ALL, CHANGE, READ, Rights, TableRights

TABLES = (
    TableRights(table="queues_workqueue", api=CHANGE, executor=READ, worker=READ),
    TableRights(table="queues_queueevent", api=ADD, executor=READ),
    TableRights(table="queues_gate", api=ALL, executor=READ),
    TableRights(table="queues_keeper", api=READ, executor=ALL),
    TableRights(table="queues_ticket", api=Rights(read=True, change=True), executor=ALL),
)
