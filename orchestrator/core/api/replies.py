"""Answers, which pydantic writes directly, without ninja's second validation."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from pydantic import BaseModel

OF_A_BODY = (400, 408, 413, 415, 422)
"""The problems of every route with a body; the document adds them to each."""


def reply(content: BaseModel, *, status: int = 200, location: str | None = None) -> HttpResponse:
    """Answer `content` as JSON."""
    headers = {} if location is None else {"Location": location}
    return HttpResponse(
        content.__pydantic_serializer__.to_json(content),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def documented(*problems: int, **answers: Any) -> dict[int, Any]:
    """The `response` of a route: its own statuses, and the problems of every route. Those of a body
    are not listed: the document adds them.

    A problem has no model here: ninja would build one for each status of each route, which is half
    of an API process' start. The document says what a problem looks like.
    """
    statuses = {int(name.removeprefix("_")): model for name, model in answers.items()}
    return statuses | dict.fromkeys(sorted({401, 403, 500, 503, *problems}))
