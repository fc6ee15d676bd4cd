"""The rights of each service to the tables of policies.

The API changes policies, and makes due what waits for one. Executors count. A worker has nothing to
do with them.
"""

from __future__ import annotations

from orchestrator.core.frame import ADD_AND_REMOVE, ALL, CHANGE, READ, Rights, TableRights

TABLES = (
    TableRights(
        table="policies_policy",
        api=CHANGE,
        executor=READ,
        notifier=Rights(read=("id", "ref", "enabled", "retired_at")),
    ),
    TableRights(table="policies_policybucket", api=ALL, executor=ALL),
    TableRights(table="policies_policyslot", api=ADD_AND_REMOVE, executor=ADD_AND_REMOVE),
    TableRights(
        table="policies_policywait",
        api=Rights(read=True, remove=True),
        executor=ALL,
    ),
)
