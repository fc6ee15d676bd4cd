"""Answers: written by pydantic in one go, past ninja's second validation of them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from pydantic import BaseModel

from orchestrator.core.api.problems import ProblemDetails

OF_A_BODY = (400, 413, 415, 422)
"""The problems of every route that takes a body: the document has them for each of these."""


def reply(content: BaseModel, *, status: int = 200, location: str | None = None) -> HttpResponse:
    """`content` as JSON."""
    headers = {} if location is None else {"Location": location}
    return HttpResponse(
        content.__pydantic_serializer__.to_json(content),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def documented(*problems: int, **answers: Any) -> dict[int, Any]:
    """The `response` of a route: its own statuses, and the problems that every route has. Those of
    a body need no mention: the document adds them."""
    statuses = {int(name.removeprefix("_")): model for name, model in answers.items()}
    return statuses | dict.fromkeys(sorted({401, 500, 503, *problems}), ProblemDetails)
