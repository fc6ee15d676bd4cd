"""The rights of each service to the tables of inquiries.

The API asks for actions and callers, answers and cancels. Executors ask, expire, resume and prune.
"""

from __future__ import annotations

from orchestrator.core.frame import ALL, CHANGE, READ, Rights, TableRights

TABLES = (
    TableRights(
        table="inquiries_inquiry",
        api=CHANGE,
        executor=ALL,
        notifier=Rights(read=("id", "pack", "asked_by", "state")),
    ),
    TableRights(
        table="inquiries_inquiryrecord",
        api=Rights(read=True, add=True),
        executor=Rights(read=True, add=True, remove=True),
    ),
    TableRights(table="inquiries_inquirywait", api=READ, executor=ALL),
)
