"""The publications of the authors of JSON Schema, from the package `jsonschema`: the schema of
schemas, and checks of formats.

The package is imported at the first use: it takes as long as a tenth of a command that checks
nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

VOCABULARIES = "https://json-schema.org/draft/2020-12/"


def conforms(value: str, name: str) -> bool:
    """Return True if a text has the format of this name, or nobody knows that format."""
    return bool(_validator().FORMAT_CHECKER.conforms(value, name))


def schema_of_schemas() -> dict[str, Any]:
    return dict(_validator().META_SCHEMA)


def vocabulary(name: str) -> dict[str, Any]:
    """The part of the schema of schemas with this name, such as `meta/core`."""
    from jsonschema_specifications import REGISTRY

    return dict(REGISTRY.contents(VOCABULARIES + name))


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator
