"""Names that callers give for the person on whose behalf they act. Nobody checks them: the actor is
who the token says."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from orchestrator.core.investigations import GIVEN_NAME_MAX


def _on_one_line(name: str) -> str:
    if not (name.isprintable() and name.strip()):
        raise ValueError("expected printable characters on one line")
    return name


GivenName = Annotated[
    str, Field(min_length=1, max_length=GIVEN_NAME_MAX), AfterValidator(_on_one_line)
]

GIVEN_NAME: Any = Field(
    None, description="Kept as the name on whose behalf it happens. The actor is the caller."
)
