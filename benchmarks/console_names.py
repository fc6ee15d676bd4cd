"""Names of the console's pages by what is expected of them; known to all sides of its benchmark."""

from __future__ import annotations

LISTS = (
    "executions", "tasks", "templates", "causes", "triage", "queues", "catalogue", "bulk", "rules",
    "enforcements", "events", "schedules", "inquiries", "sensors", "policies", "identities", "keys",
    "audit",
)  # fmt: skip
"""Lists, by the names of their addresses."""

TABLES = (*LISTS, "cause", "triage_cause", "steps of 1,000 steps")
"""Have a table, of 50 rows if there are so many."""

GRAPH, GANTT, HEAT_MAP = LARGE = ("graph of 1,000 steps", "gantt of 1,000 steps", "heat map")
"""Have a picture of a thousand, which may take longer and be larger."""
