"""Polls: triggers that Muster itself watches by looking again and again.

`core.http_poll` fetches a URL, `core.file` looks at files of a host. Each trigger of these types
has a sensor, whose assignment makes one service poll. Here are their parameters; `workers.sensors`
does the looking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from orchestrator.automation import assigning
from orchestrator.automation.models import Assignment, Sensor, Trigger
from orchestrator.automation.models.sensors import POLL
from orchestrator.automation.problems import Problem
from orchestrator.core import expressions, key_references, keyholder
from orchestrator.core.keyholder import Wanted

HTTP, FILE = TYPES = ("core.http_poll", "core.file")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
ITEM_NAMES = ("item",)
"""The names that the expression of an item's key may begin with."""
MOST_ITEMS = 5_000
"""Of one response, and files of one pattern: the cursor remembers each."""

EXISTING = {
    "enum": ["ignore", "report"],
    "default": "ignore",
    "description": "What becomes of all that is there at the first look.",
}
LABELS = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "Labels that the sensor service must have.",
}

HTTP_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "pattern": "^https?://.", "maxLength": 2_000},
        "every_seconds": {"type": "number", "minimum": 1, "maximum": 86_400, "default": 60},
        "timeout_seconds": {"type": "number", "minimum": 1, "maximum": 60, "default": 20},
        "headers": {
            "type": "object",
            "maxProperties": 30,
            "additionalProperties": {"type": ["string", "object"]},
            "description": 'Texts, or {"$key": "owner/name"}: a key that the pack core may get.',
        },
        "items": {
            "type": "string",
            "pattern": "^(/.*)?$",
            "description": "JSON pointer of the list of items; without it the response is one.",
        },
        "item_key": {
            "type": "string",
            "maxLength": 500,
            "description": "What stays the same of an item that changes: {{ item.id }}.",
        },
        "existing": EXISTING,
        "labels": LABELS,
    },
}
HTTP_PAYLOAD: Mapping[str, Any] = {
    "type": "object",
    "required": ["item", "key", "change", "url"],
    "properties": {
        "item": {"description": "As it is now."},
        "key": {"type": "string"},
        "change": {"enum": ["new", "changed"]},
        "url": {"type": "string"},
    },
}

FILE_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "pattern": "^/.",
            "maxLength": 1_000,
            "description": "Files, with * ? [..] and **; below MUSTER_SENSOR_FILE_ROOTS.",
        },
        "every_seconds": {"type": "number", "minimum": 1, "maximum": 86_400, "default": 5},
        "changes": {
            "type": "array",
            "items": {"enum": ["created", "changed", "deleted"]},
            "description": "Which changes are events; without it, all.",
        },
        "lines": {
            "type": "boolean",
            "default": False,
            "description": "true: each line that is added is an event.",
        },
        "existing": EXISTING,
        "labels": LABELS,
    },
}
FILE_PAYLOAD: Mapping[str, Any] = {
    "type": "object",
    "required": ["path", "change"],
    "properties": {
        "path": {"type": "string"},
        "change": {"enum": ["created", "changed", "deleted", "line"]},
        "size": {"type": "integer"},
        "modified_at": {"type": "string"},
        "line": {"type": "string"},
        "offset": {"type": "integer"},
    },
}


def problems(type_ref: str, parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what a poll's schema cannot say."""
    if type_ref != HTTP:
        return
    headers = parameters.get("headers", {})
    if isinstance(headers, Mapping):
        yield from _header_problems(headers)
    key = parameters.get("item_key")
    if isinstance(key, str):
        try:
            expressions.read(key, names=ITEM_NAMES)
        except expressions.InvalidExpression as error:
            yield Problem(("item_key",), str(error))


def _header_problems(headers: Mapping[str, Any]) -> Iterator[Problem]:
    for path, message in key_references.faults(dict(headers)):
        yield Problem(("headers", *path), message)
    for name, value in headers.items():
        if isinstance(value, Mapping) and not key_references.is_reference(value):
            yield Problem(("headers", name), f"expected a text or a key, found {value!r:.80}")
        elif HEADER.fullmatch(name) is None:
            yield Problem(("headers", name), "expected the name of a header")
        elif not all(map(_is_part, _texts(value))):
            yield Problem(("headers", name), "expected printable characters of ASCII alone")


def _texts(value: str | Mapping[str, Any]) -> list[str]:
    """The texts that a header has besides keys."""
    if isinstance(value, str):
        return [value]
    return [part for part in value.get(key_references.TEXT, ()) if isinstance(part, str)]


def _is_part(text: str) -> bool:
    return text.isascii() and text.isprintable()


def key_problems(type_ref: str, parameters: Mapping[str, Any]) -> list[Problem]:
    """Find the keys that a poll may not get: those of the installation that reach `core` only."""
    found = list(key_references.found(dict(parameters.get("headers", {}))))
    wanted = {wanted_key(type_ref, reference): path for path, reference in found}
    refused = keyholder.holder().refusals(list(wanted)) if wanted else {}
    return [Problem(("headers", *wanted[each]), why) for each, why in refused.items()]


def wanted_key(sensor_ref: str, reference: str) -> Wanted:
    """A key that a sensor asks for: it gets those that actions of its pack may get."""
    return Wanted(reference=reference, action_ref=sensor_ref, owner=0)


def follow(trigger: Trigger, *, wanted: bool, now: datetime) -> None:
    """Have the poll of a trigger run while an enabled rule waits for it."""
    if not wanted and not Assignment.objects.filter(sensor__trigger=trigger).exists():
        return
    sensor, _ = Sensor.objects.get_or_create(
        trigger=trigger,
        defaults={
            "ref": f"{trigger.type.ref}.{trigger.pk}",
            "runtime": POLL,
            "trigger_types": [trigger.type.ref],
            "labels": trigger.parameters.get("labels", {}),
            "updated_at": now,
        },
    )
    if wanted != sensor.enabled_by_pack:
        sensor.enabled_by_pack = wanted
        sensor.save(update_fields=["enabled_by_pack"])
    assigning.follow(sensor, now=now, actor="rules")
