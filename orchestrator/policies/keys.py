"""The key of an execution for a policy: the values of the parameters that the policy names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.core import json_values, redaction
from orchestrator.core.schemas import canonical
from orchestrator.policies.models.buckets import KEY_SHOWN_MAX

Path = tuple[str, ...]


def path_of(pointer: str) -> Path:
    """The steps of a JSON pointer (RFC 6901)."""
    steps = pointer.split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def values_of(parameters: Mapping[str, Any], keyed_by: Sequence[str]) -> list[Any]:
    """The values there; null for one that is missing."""
    return [json_values.at(parameters, path_of(pointer)) for pointer in keyed_by]


def hash_of(keyed_by: Sequence[str], values: Sequence[Any]) -> str:
    """The same for equal values of the same parameters, and for no others."""
    text = json.dumps([list(keyed_by), [canonical.key(value) for value in values]])
    return hashlib.sha256(text.encode()).hexdigest()


def shown(
    parameters: Mapping[str, Any], keyed_by: Sequence[str], *, schema: Mapping[str, Any]
) -> str:
    """The values for people, without secrets."""
    harmless = redaction.redacted(parameters, schema=schema)
    texts = [
        f"{pointer[1:]}={json.dumps(value, ensure_ascii=False)}"
        for pointer, value in zip(keyed_by, values_of(harmless, keyed_by), strict=True)
    ]
    text = ", ".join(texts)
    return text if len(text) <= KEY_SHOWN_MAX else f"{text[: KEY_SHOWN_MAX - 1]}…"
