"""Task messages: bytes, headers and properties become a `TaskMessage`, or every problem with it.

The shape is that of CAF's worker framework (`TaskMessage.java`, versions 1 to 3): a JSON object
whose `taskData` is base64. Members that it does not know are ignored, and the content type is not
looked at, as CAF does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core import brokers, json_values
from orchestrator.core.redaction import quoted
from orchestrator.queues.gates import headers as names
from orchestrator.queues.gates import tracking
from orchestrator.queues.gates.problems import Problem

VERSIONS = (1, 2, 3)
STATUSES = ("NEW_TASK", "RESULT_SUCCESS", "RESULT_FAILURE", "RESULT_EXCEPTION", "INVALID_TASK")
LONGEST_ID = 200
LONGEST_NAME = 255
PRIORITIES = (-100, 100)
"""The bounds of an execution's priority."""


@dataclass(frozen=True, kw_only=True)
class TaskMessage:
    """A task as a foreign client asks for it."""

    task_id: str
    version: int = 3
    classifier: str = ""
    api_version: int = 1
    data: bytes = b""
    status: str = "NEW_TASK"
    context: Mapping[str, bytes] = field(default_factory=dict)
    to: str | None = None
    tracking: Mapping[str, Any] | None = None
    source: Mapping[str, Any] | None = None
    correlation_id: str | None = None
    priority: int | None = None

    @property
    def digest(self) -> str:
        """Equal for messages that ask for the same: SHA-256 of classifier, version, data and
        context. A task's id alone is not enough: CAF uses one id for a whole chain of tasks."""
        hashed = hashlib.sha256()
        for part in (self.classifier.encode(), str(self.api_version).encode(), self.data):
            hashed.update(len(part).to_bytes(8, "big") + part)
        for key in sorted(self.context):
            for part in (key.encode(), self.context[key]):
                hashed.update(len(part).to_bytes(8, "big") + part)
        return hashed.hexdigest()

    def envelope(self) -> dict[str, Any]:
        """All of it but its data, as JSON: what a ticket keeps for the answer."""
        return {
            "version": self.version,
            "taskId": self.task_id,
            "taskClassifier": self.classifier,
            "taskApiVersion": self.api_version,
            "taskStatus": self.status,
            "context": {key: as_base64(value) for key, value in self.context.items()},
            "to": self.to,
            "tracking": None if self.tracking is None else dict(self.tracking),
            "sourceInfo": None if self.source is None else dict(self.source),
            "correlationId": self.correlation_id,
            "priority": self.priority,
        }


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A task message as far as it could be read."""

    message: TaskMessage | None
    """None if there is any problem."""
    task_id: str
    """The task's id, or what can stand for it: the AMQP `message_id`, or nothing."""
    tries: int
    """Starts that were lost before, as the retry header says."""
    problems: tuple[Problem, ...] = ()
    envelope: Mapping[str, Any] = field(default_factory=dict)
    """The members that are valid, for the answer to a message with problems."""


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def read(
    body: bytes, headers: Mapping[str, Any], properties: Mapping[str, Any], *, most_bytes: int
) -> Reading:
    """Read a task message. It raises nothing, whatever the bytes are."""
    tries = names.tries_of(headers.get(names.RETRY, 0))
    problems = list(_header_problems(headers, tries))
    if brokers.UNDECODED in properties:
        problems.append(Problem("properties", f"not decodable: {properties[brokers.UNDECODED]}"))
    members, fault = _members(body, most_bytes)
    if fault is not None:
        problems.append(Problem("", fault))
    values: dict[str, Any] = {}
    for name, reader in _READERS.items():
        try:
            values[name] = reader(members.get(name))
        except ValueError as error:
            if fault is None:
                problems.append(Problem(f"/{name}", str(error)))
    message = None if problems else _message(values, properties)
    return Reading(
        message=message,
        task_id=values.get("taskId") or _standing_in(properties),
        tries=tries or 0,
        problems=tuple(problems),
        envelope=_valid(values) if message is None else message.envelope(),
    )


def _message(values: Mapping[str, Any], properties: Mapping[str, Any]) -> TaskMessage:
    return TaskMessage(
        version=values["version"],
        task_id=values["taskId"],
        classifier=values["taskClassifier"],
        api_version=values["taskApiVersion"],
        data=values["taskData"],
        status=values["taskStatus"],
        context=values["context"],
        to=values["to"],
        tracking=values["tracking"],
        source=values["sourceInfo"],
        correlation_id=values["correlationId"],
        priority=_priority(values["priority"], properties),
    )


def _priority(own: int | None, properties: Mapping[str, Any]) -> int | None:
    """The message's own, or else the AMQP property."""
    given = properties.get("priority")
    if own is None and json_values.is_whole(given) and 0 <= given <= 255:
        return min(int(given), PRIORITIES[1])
    return own


def _header_problems(headers: Mapping[str, Any], tries: int | None) -> Iterator[Problem]:
    if tries is None:
        shown = quoted(str(json_values.storable(headers[names.RETRY])))
        expected = "expected a whole number from 0, or its decimal text"
        yield Problem(f"header {names.RETRY}", f"{expected}, found {shown}")
    for name in headers:
        if name.startswith(names.OFFLOADED):
            yield Problem(
                f"header {name}",
                "the data of this message lies in another store, which this gate does not read",
            )


def _members(body: bytes, most_bytes: int) -> tuple[Mapping[str, Any], str | None]:
    """The members of the JSON object, or none and what is wrong with it."""
    if len(body) > most_bytes:
        return {}, f"expected at most {most_bytes:,} bytes, found {len(body):,}"
    try:
        value = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        return {}, f"is not UTF-8: {error.reason} at byte {error.start}"
    except RecursionError:
        return {}, json_values.TOO_DEEP
    except ValueError as error:
        return {}, f"is not JSON: {error}"
    if not isinstance(value, dict):
        return {}, f"expected a JSON object, found {_kind(value)}"
    return value, None


def _standing_in(properties: Mapping[str, Any]) -> str:
    """The id of a message whose own cannot be read."""
    return str(json_values.storable(properties.get("message_id") or ""))[:LONGEST_ID]


def _valid(values: Mapping[str, Any]) -> dict[str, Any]:
    valid = {name: value for name, value in values.items() if name != "taskData"}
    if "context" in valid:
        valid["context"] = {key: as_base64(value) for key, value in valid["context"].items()}
    return valid


def _kind(value: Any) -> str:
    kinds = {str: "text", list: "a list", dict: "an object", bool: "true or false"}
    return "nothing" if value is None else kinds.get(type(value), "a number")


# --- members: each returns its value, or raises ValueError with what was expected ----------------


def _version(value: Any) -> int:
    if value is None:
        return VERSIONS[-1]
    if not json_values.is_whole(value) or value not in VERSIONS:
        raise ValueError(f"expected 1, 2 or 3, found {quoted(value)}")
    return int(value)


def _task_id(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_ID:
        found = f"{len(value)} characters" if isinstance(value, str) else _kind(value)
        raise ValueError(f"expected 1 to {LONGEST_ID} characters, found {found}")
    return _storable_text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return _optional_text(value) or ""


def _optional_text(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {_kind(value)}")
    if len(value) > LONGEST_NAME:
        raise ValueError(f"expected at most {LONGEST_NAME} characters, found {len(value)}")
    return _storable_text(value)


def _storable_text(value: str) -> str:
    if fault := json_values.text_fault(value):
        raise ValueError(f"contains {fault}")
    return value


def _api_version(value: Any) -> int:
    if value is None:
        return 1
    if not json_values.is_whole(value) or not 0 <= value < 2**31:
        raise ValueError(f"expected a whole number from 0, found {quoted(value)}")
    return int(value)


def _data(value: Any) -> bytes:
    return b"" if value is None else _from_base64(value)


def _from_base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"expected base64, found {_kind(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"is not base64: {error}") from None


def _status(value: Any) -> str:
    if value is None:
        return STATUSES[0]
    if not isinstance(value, str) or value not in STATUSES:
        raise ValueError(f"expected one of {', '.join(STATUSES)}, found {quoted(value)}")
    return value


def _context(value: Any) -> dict[str, bytes]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"expected an object of base64 texts, found {_kind(value)}")
    context = {}
    for key, item in value.items():
        try:
            # CAF writes null for a service without a context
            context[_storable_text(key)] = b"" if item is None else _from_base64(item)
        except ValueError as error:
            raise ValueError(f"{quoted(key)}: {error}") from None
    return context


def _source(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {_kind(value)}")
    return {name: _optional_text(value.get(name)) for name in ("name", "version")}


def _own_priority(value: Any) -> int | None:
    least, most = PRIORITIES
    if value is None:
        return None
    if not json_values.is_whole(value) or not least <= value <= most:
        raise ValueError(f"expected a whole number from {least} to {most}, found {quoted(value)}")
    return int(value)


_READERS = {
    "version": _version,
    "taskId": _task_id,
    "taskClassifier": _text,
    "taskApiVersion": _api_version,
    "taskData": _data,
    "taskStatus": _status,
    "context": _context,
    "to": _optional_text,
    "tracking": tracking.read,
    "sourceInfo": _source,
    "correlationId": _optional_text,
    "priority": _own_priority,
}
