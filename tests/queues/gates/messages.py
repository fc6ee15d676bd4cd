"""Task messages as a foreign client writes them."""

from __future__ import annotations

import base64
import json
from typing import Any


def encoded(data: Any) -> str:
    """Base64 of JSON, or of bytes."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.b64encode(raw).decode()


def decoded(text: str) -> Any:
    return json.loads(base64.b64decode(text))


def members(task_id: str = "t1", **changed: Any) -> dict[str, Any]:
    return {
        "version": 3,
        "taskId": task_id,
        "taskClassifier": "Echo",
        "taskApiVersion": 1,
        "taskData": encoded({"text": "hello"}),
        "taskStatus": "NEW_TASK",
        "context": {},
        "to": None,
        **changed,
    }


def body(task_id: str = "t1", **changed: Any) -> bytes:
    return json.dumps(members(task_id, **changed)).encode()


def raw(text: str) -> bytes:
    return base64.b64decode(text)
