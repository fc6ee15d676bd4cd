"""Request bodies: JSON that PostgreSQL's jsonb can store."""

from __future__ import annotations

from itertools import islice
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja.parser import Parser

from orchestrator.core import json_values
from orchestrator.core.api.problems import FieldProblem, Problem, invalid, plain, too_large

ERROR_LIMIT = 50


class StrictParser(Parser):
    """A parser that refuses faults that Python's parser accepts, and names the place of each.

    Values that the database cannot store are among them: see `json_values`.
    """

    def parse_body(self, request: HttpRequest) -> Any:
        _check_type(request)
        body = request.body
        if len(body) > settings.MUSTER.max_request_bytes:  # chunked: no header had the length
            raise too_large(settings.MUSTER.max_request_bytes)
        value = _loaded(body)
        if faults := list(islice(json_values.faults(value), ERROR_LIMIT)):
            raise invalid([FieldProblem(pointer=place, message=what) for place, what in faults])
        return value


def _check_type(request: HttpRequest) -> None:
    content_type = request.META.get("CONTENT_TYPE", "")
    if content_type.split(";", 1)[0].strip().lower() != "application/json":
        raise plain(415, f"Expected Content-Type: application/json, found {content_type[:100]!r}")


def _loaded(body: bytes) -> Any:
    try:
        return json_values.read(body, has_unique_names=True)
    except json_values.Malformed as error:
        raise Problem(400, "malformed-json", "The body is not JSON", str(error)) from None
    except json_values.Unreadable as error:
        raise invalid([FieldProblem(pointer=error.place, message=str(error))]) from None
