"""The rights of each service to the tables of notifications.

All ask whether somebody listens. Triggers write the journal with the rights of the owner. The API
and notifiers make tickets and take them, as both serve streams.
"""

from __future__ import annotations

from orchestrator.core.frame import ALL, READ, Rights, TableRights

TABLES = (
    TableRights(table="notifications_listener", api=ALL, executor=READ, worker=READ, notifier=ALL),
    TableRights(
        table="notifications_change",
        api=READ,
        executor=Rights(read=("id", "at"), remove=True),
        notifier=READ,
    ),
    TableRights(table="notifications_streamticket", api=ALL, notifier=ALL),
)
