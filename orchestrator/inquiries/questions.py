"""Questions as they are written: in a step of a template, in the parameters of `core.ask`, in a
request. One check serves all three."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core import json_values, packs
from orchestrator.core.errors import Refusal, Refused
from orchestrator.core.json_values import is_number
from orchestrator.core.packs import parameters
from orchestrator.core.redaction import quoted

ACTION = "core.ask"
"""The action of which nothing runs: its executions wait for an answer."""

PROMPT_MAX = 2_000
ASSIGNEES_MAX = 50
ASSIGNEE = re.compile(r"(?:user|service|role|action):[^\s\0][^\0]{0,148}")
DAY_SECONDS = 86_400.0
TTL_SECONDS = (1, 366 * DAY_SECONDS)
ERROR, COMPLETE = ON_TIMEOUT = ("error", "complete")

NAMES = (
    "prompt", "schema", "assignees", "ttl_seconds", "on_timeout", "default", "allow_requester",
)  # fmt: skip
WAIT_FOR = "wait_for"

Finding = tuple[tuple[str | int, ...], str]
"""The place of a problem, and what is wrong."""


class QuestionRefused(Refused):
    """The question cannot be asked like this."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question: what people are asked, who may answer, and until when."""

    prompt: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    assignees: tuple[str, ...] = ()
    ttl_seconds: float = DAY_SECONDS
    on_timeout: str = ERROR
    default: Any = None
    allow_requester: bool = False


def read(values: Mapping[str, Any]) -> Question:
    """Read a question. Raises QuestionRefused with all problems."""
    if found := list(problems(values)):
        raise QuestionRefused(
            [Refusal(0, json_values.pointer(where), message) for where, message in found]
        )
    known = {name: values[name] for name in NAMES if values.get(name) is not None}
    return Question(**known | {"assignees": tuple(known.get("assignees", ()))})


def problems(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Find all that is wrong with a question."""
    yield from _prompt(values.get("prompt"))
    schema = values.get("schema")
    schema_is_sound = True
    for finding in _schema({} if schema is None else schema):
        schema_is_sound = False
        yield finding
    yield from _assignees([] if values.get("assignees") is None else values["assignees"])
    ttl, (least, most) = values.get("ttl_seconds"), TTL_SECONDS
    if ttl is not None and not (is_number(ttl) and least <= ttl <= most):
        yield ("ttl_seconds",), f"expected {least} to {most:,.0f} seconds, found {quoted(ttl)}"
    allow = values.get("allow_requester")
    if allow is not None and not isinstance(allow, bool):
        yield ("allow_requester",), f"expected true or false, found {quoted(allow)}"
    yield from _timeout(values, schema if schema_is_sound else None)


def response_problems(schema: Mapping[str, Any], response: Any) -> list[parameters.Problem]:
    """Find all that is wrong with a response: it is an object that fits the schema."""
    if not isinstance(response, dict):
        message = f"expected an object, found {quoted(response)}"
        return [parameters.Problem("", message)]
    if faults := list(json_values.faults(response)):
        return [parameters.Problem(place, what) for place, what in faults]
    return packs.validate_value(schema, response)


def _prompt(prompt: Any) -> Iterator[Finding]:
    expected = f"expected a text of 1 to {PROMPT_MAX:,} characters"
    if not isinstance(prompt, str) or not 0 < len(prompt.strip()) <= len(prompt) <= PROMPT_MAX:
        yield ("prompt",), f"{expected}, found {quoted(prompt)}"
    elif fault := json_values.text_fault(prompt):
        yield ("prompt",), f"contains {fault}"


def _schema(schema: Any) -> Iterator[Finding]:
    if not isinstance(schema, dict):
        yield ("schema",), f"expected a JSON Schema, found {quoted(schema)}"
        return
    for problem in parameters.schema_problems(schema):
        yield ("schema", *problem.where), problem.message


def _assignees(assignees: Any) -> Iterator[Finding]:
    expected = "user:NAME, service:NAME, role:ROLE or action:PACK.NAME"
    if not isinstance(assignees, list) or len(assignees) > ASSIGNEES_MAX:
        yield ("assignees",), f"expected a list of at most {ASSIGNEES_MAX} of {expected}"
        return
    for index, each in enumerate(assignees):
        if not isinstance(each, str) or not ASSIGNEE.fullmatch(each):
            yield ("assignees", index), f"expected {expected}, found {quoted(each)}"


def _timeout(values: Mapping[str, Any], schema: Mapping[str, Any] | None) -> Iterator[Finding]:
    on_timeout, default = values.get("on_timeout"), values.get("default")
    if on_timeout is not None and on_timeout not in ON_TIMEOUT:
        yield (
            ("on_timeout",),
            f"expected one of {', '.join(ON_TIMEOUT)}, found {quoted(on_timeout)}",
        )
    elif on_timeout == COMPLETE and default is None:
        yield ("default",), "expected a response, as on_timeout is complete"
    elif on_timeout != COMPLETE and default is not None:
        yield ("default",), "expected none, as on_timeout is not complete"
    elif default is not None:
        for problem in response_problems(schema or {}, default):
            where = tuple(part for part in problem.pointer.split("/") if part)
            yield ("default", *where), problem.message
