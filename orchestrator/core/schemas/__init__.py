"""JSON Schema (2020-12) with a budget: no schema and no value can stop the process that checks it.

schemas.faults(schema)                  # what is wrong with a schema, before it is stored
schemas.findings(document, value)       # what is wrong with a value; raises TooCostly
"""

from orchestrator.core.schemas.checking import STEP_LIMIT, Finding, Said, TooCostly, Unread
from orchestrator.core.schemas.documents import Document
from orchestrator.core.schemas.faults import Fault, faults, findings
from orchestrator.core.schemas.limits import NODE_LIMIT

__all__ = [
    "NODE_LIMIT",
    "STEP_LIMIT",
    "Document",
    "Fault",
    "Finding",
    "Said",
    "TooCostly",
    "Unread",
    "faults",
    "findings",
]
