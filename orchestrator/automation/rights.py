"""The rights of each service to the tables of automation.

The API records events and changes rules. Sensor services, which log in as executors do, fire
timers, run sensors, and make the trigger of a sensor's first event. Workers ask whether a rule
waits to know what they claim. Executors prune.
"""

from __future__ import annotations

from orchestrator.core.frame import ADD, ADD_AND_REMOVE, ALL, CHANGE, READ, Rights, TableRights

TABLES = (
    TableRights(
        table="automation_triggertype",
        api=CHANGE,
        executor=READ,
        notifier=Rights(read=("id", "ref")),
    ),
    TableRights(
        table="automation_trigger",
        api=CHANGE,
        executor=ADD,
        notifier=Rights(read=("id", "type_id")),
    ),
    TableRights(table="automation_timer", api=CHANGE, executor=CHANGE),
    TableRights(table="automation_webhook", api=ALL, executor=READ),
    TableRights(table="automation_deliverycount", api=ALL, executor=READ),
    TableRights(
        table="automation_event",
        api=ADD,
        executor=ALL,
        notifier=Rights(read=("id", "type_ref", "sent_by")),
    ),
    TableRights(
        table="automation_rule",
        api=CHANGE,
        executor=READ,
        notifier=Rights(read=("id", "ref", "enabled_by_pack", "enabled_override", "retired_at")),
    ),
    TableRights(table="automation_rulerevision", api=ADD, executor=READ),
    TableRights(
        table="automation_enforcement",
        api=READ,
        executor=ALL,
        notifier=Rights(read=("id", "rule_id")),
    ),
    TableRights(table="automation_suppression", api=READ, executor=ALL),
    # the API enables, disables and restarts; sensor services do the rest
    TableRights(
        table="automation_sensor",
        api=CHANGE,
        executor=CHANGE,
        notifier=Rights(read=("id", "ref")),
    ),
    TableRights(
        table="automation_assignment",
        api=CHANGE,
        executor=CHANGE,
        notifier=Rights(read=("id", "sensor_id", "state")),
    ),
    TableRights(table="automation_assignmentevent", api=ADD, executor=ADD_AND_REMOVE),
    TableRights(table="automation_sensorservice", api=READ, executor=ALL),
    TableRights(table="automation_sensorlog", api=READ, executor=ALL),
    TableRights(table="automation_revision", api=CHANGE, executor=READ),
    TableRights(table="automation_watermark", api=ALL, executor=CHANGE, worker=READ),
)
