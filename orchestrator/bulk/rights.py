"""The rights of each service to the tables of bulk orders: the API orders, stops and shows;
executors work off and prune. A notifier learns how far an order is, and nothing of what it says."""

from __future__ import annotations

from orchestrator.core.frame import ALL, Rights, TableRights

TABLES = (
    TableRights(
        table="bulk_bulkorder",
        api=Rights(read=True, add=True, change=True),
        executor=ALL,
        notifier=Rights(read=("id", "ordered_by", "state")),
    ),
    TableRights(
        table="bulk_bulkpart",
        api=Rights(read=True, add=True),
        executor=Rights(read=True, remove=True),
    ),
    TableRights(
        table="bulk_refusal",
        api=Rights(read=True),
        executor=Rights(read=True, add=True, remove=True),
    ),
)
