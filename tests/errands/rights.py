"""The rights of each service to the tables of errands."""

from orchestrator.core.frame import ADD, CHANGE, READ, TableRights

TABLES = (
    TableRights(table="errands_errandkind", api=READ, executor=READ),
    TableRights(table="errands_errand", api=CHANGE, executor=CHANGE),
    TableRights(table="errands_errandevent", api=ADD, executor=ADD),
)
