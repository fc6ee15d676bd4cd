"""Rows as JSON, for the API and for `--json`. Apart from the values of facts, so that a service
starts without pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Shown(BaseModel):
    """A row as JSON. Built when the first row is shown: a command shows few kinds of rows."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)


def document(shown: BaseModel) -> dict[str, Any]:
    """Convert to the document that `--json` prints."""
    return shown.model_dump(mode="json")
