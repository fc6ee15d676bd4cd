"""Request bodies: JSON, and only JSON that PostgreSQL's jsonb can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

from django.conf import settings
from django.http import HttpRequest
from ninja.parser import Parser

from orchestrator.api.problems import FieldProblem, Problem, invalid, plain, too_large

DEPTH_LIMIT = 50
"""Deeper JSON is no action's parameters, but somebody's try at a parser's stack."""

ERROR_LIMIT = 50


class StrictParser(Parser):
    """Refuses, with the place of each fault, what Python's parser would let pass.

    Not JSON: NaN, Infinity. Not storable: NUL characters, lone surrogates, numbers beyond
    the range of a double (PostgreSQL manual, 8.14 "JSON Types").
    """

    def parse_body(self, request: HttpRequest) -> Any:
        _check_type(request)
        body = request.body
        if len(body) > settings.MUSTER.max_request_bytes:  # chunked, so no header said so
            raise too_large(settings.MUSTER.max_request_bytes)
        value = _loaded(body)
        if faults := list(islice(_unstorable(value), ERROR_LIMIT)):
            raise invalid(faults)
        return value


def _check_type(request: HttpRequest) -> None:
    found = request.META.get("CONTENT_TYPE", "")
    if found.split(";", 1)[0].strip().lower() != "application/json":
        raise plain(415, f"Expected Content-Type: application/json, found {found[:100]!r}")


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
        raise invalid([_too_deep("")]) from None
    except ValueError as error:  # an integer of thousands of digits
        raise invalid([FieldProblem(pointer="", message=str(error))]) from None


def _refuse_constant(name: str) -> NoReturn:
    raise invalid([FieldProblem(pointer="", message=f"{name} is not a JSON number")])


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed-json", "The body is not JSON", detail)


def _unstorable(value: Any) -> Iterator[FieldProblem]:
    """Whatever jsonb cannot hold, with its place. Not recursive: the depth is the caller's."""
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str):
            if fault := _text_fault(value):
                yield FieldProblem(pointer=pointer(path), message=f"contains {fault}")
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield FieldProblem(pointer=pointer(path), message="is beyond a double's range")
        elif isinstance(value, dict | list):
            if len(path) >= DEPTH_LIMIT:
                yield _too_deep(pointer(path))
                continue
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                if isinstance(key, str) and (fault := _text_fault(key)):
                    yield FieldProblem(pointer=pointer(path), message=f"a name contains {fault}")
                else:
                    waiting.append((item, (*path, key)))


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "a NUL character, which PostgreSQL cannot store"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair, which is not Unicode text"
    return None


def pointer(path: tuple[str | int, ...]) -> str:
    """The JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _too_deep(place: str) -> FieldProblem:
    message = f"is nested more than {DEPTH_LIMIT} levels deep"
    return FieldProblem(pointer=place, message=message)
