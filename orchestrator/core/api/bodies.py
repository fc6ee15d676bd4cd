"""Request bodies: JSON that PostgreSQL's jsonb can store."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, NoReturn

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
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _malformed(f"not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _malformed(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise invalid([FieldProblem(pointer="", message=json_values.TOO_DEEP)]) from None
    except ValueError as error:  # an integer with thousands of digits
        raise invalid([FieldProblem(pointer="", message=str(error))]) from None


def _refuse_constant(name: str) -> NoReturn:
    raise invalid([FieldProblem(pointer="", message=f"{name} is not a JSON number")])


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed-json", "The body is not JSON", detail)
