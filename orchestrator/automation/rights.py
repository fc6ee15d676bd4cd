"""The rights of each service to the tables of automation.

The API records events and changes rules. Sensor services, which log in as executors do, fire
timers. Workers ask whether a rule waits to know what they claim. Executors prune.
"""

from __future__ import annotations

from orchestrator.core.frame import ADD, ALL, CHANGE, READ, TableRights

TABLES = (
    TableRights(table="automation_triggertype", api=CHANGE, executor=READ),
    TableRights(table="automation_trigger", api=CHANGE, executor=READ),
    TableRights(table="automation_timer", api=CHANGE, executor=CHANGE),
    TableRights(table="automation_event", api=ADD, executor=ALL),
    TableRights(table="automation_rule", api=CHANGE, executor=READ),
    TableRights(table="automation_rulerevision", api=ADD, executor=READ),
    TableRights(table="automation_enforcement", api=READ, executor=ALL),
    TableRights(table="automation_suppression", api=READ, executor=ALL),
    TableRights(table="automation_revision", api=CHANGE, executor=READ),
    TableRights(table="automation_watermark", api=ALL, executor=CHANGE, worker=READ),
)
