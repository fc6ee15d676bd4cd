"""Log lines written by hand, where there is no Django or where logging may be interrupted: in
sentinels and in handlers of signals. It imports nothing of ours, as sentinels start light."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any


def line(event: str, *, level: str, logger: str, as_json: bool, **fields: Any) -> str:
    """The line, with its end, as the services log it: see `settings.logs`."""
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    if as_json:
        known = {"event": event, "level": level, "logger": logger, "timestamp": at}
        return json.dumps(fields | known, default=str) + "\n"
    told = "".join(f" {name}={value}" for name, value in fields.items())
    return f"{at} [{level}] {event} [{logger}]{told}\n"
