"""The data of task messages as parameters of actions, and results as data of answers."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from orchestrator.core import json_values
from orchestrator.queues.gates.shape import as_base64

JSON, TEXT, RAW = "json", "text", "raw"
TEXT_KEY, RAW_KEY = "text", "task_data"
"""The parameter, and the key of a result, that hold the data of the two other codecs."""


def decoded(data: bytes, *, codec: str) -> dict[str, Any]:
    """Read the parameters of an action. Raises ValueError with what was expected."""
    if codec == RAW:
        return {RAW_KEY: as_base64(data)}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    if codec == TEXT:
        return {TEXT_KEY: text}
    try:
        parameters = json.loads(text) if text.strip() else {}
    except RecursionError:
        raise ValueError(json_values.TOO_DEEP) from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(parameters, dict):
        raise ValueError("expected a JSON object, which becomes the parameters of the action")
    return parameters


def encoded(result: Any, *, codec: str) -> bytes:
    """Write the data of an answer. A result that the codec does not fit is written as JSON."""
    if codec == TEXT and isinstance(result, Mapping) and isinstance(result.get(TEXT_KEY), str):
        return str(result[TEXT_KEY]).encode("utf-8", "replace")
    if codec == RAW and isinstance(result, Mapping) and isinstance(result.get(RAW_KEY), str):
        try:
            return base64.b64decode(result[RAW_KEY], validate=True)
        except (binascii.Error, ValueError):
            pass
    return json.dumps(result).encode()
