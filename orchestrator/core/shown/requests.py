"""A request of an execution as a command and as `curl`, for who wants to do the same elsewhere.

Nothing secret is in them: the values that a schema or a name marks are `***`, and the token of the
API is a variable of the shell.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from orchestrator.core.executions import NewExecution
from orchestrator.core.models import Action
from orchestrator.core.redaction import redacted

OPTIONS = {
    "queue": "--queue",
    "priority": "--priority",
    "timeout_seconds": "--timeout-seconds",
    "scheduled_timeout_seconds": "--scheduled-timeout-seconds",
    "queue_ttl_ms": "--queue-ttl-ms",
    "deadline_seconds": "--deadline-seconds",
    "correlation_id": "--correlation-id",
}
"""Options of `manage.py execution submit`, by the names that the API has for the same."""


def body(new: NewExecution, action: Action) -> dict[str, Any]:
    """The body of the request: what was given, without secrets."""
    parameters = redacted(dict(new.parameters), schema=action.parameters_schema)
    given: dict[str, Any] = {"action_ref": new.action_ref, "parameters": parameters}
    for name in ("worker_id", "worker_selector", *OPTIONS):
        value = getattr(new, name)
        if value is not None:
            given[name] = value
    return given


def curl(given: dict[str, Any], *, url: str) -> str:
    """The request as a command of curl."""
    document = json.dumps(given, ensure_ascii=False)
    return (
        f"curl --fail-with-body {shlex.quote(url)} \\\n"
        '  --header "Authorization: Bearer $TOKEN" \\\n'
        "  --header 'Content-Type: application/json' \\\n"
        f"  --data {shlex.quote(document)}"
    )


def command(given: dict[str, Any]) -> str:
    """The request as `manage.py execution submit`."""
    words = ["./manage.py", "execution", "submit", given["action_ref"]]
    if given["parameters"]:
        words += ["--parameters", json.dumps(given["parameters"], ensure_ascii=False)]
    if "worker_id" in given:
        words += ["--worker", str(given["worker_id"])]
    for key, value in given.get("worker_selector", {}).items():
        words += ["--label", f"{key}={value}"]
    for name, option in OPTIONS.items():
        if name in given:
            words.append(f"{option}={_number(given[name])}")
    return shlex.join(words)


def _number(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
