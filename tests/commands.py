"""`manage.py` in this process: what a command prints, and how it refuses."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command


class Command(NamedTuple):
    run: Callable[..., str]
    document: Callable[..., Any]
    refused: Callable[..., str]


def of(name: str) -> Command:
    """The command of this name: `run, document, refused = commands.of("dlq")`."""
    return Command(partial(printed, name), partial(document, name), partial(refused, name))


def printed(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def document(*arguments: str) -> Any:
    """What it tells scripts."""
    return json.loads(printed(*arguments, "--json"))


def items(*arguments: str) -> Any:
    """What a list that has one page tells scripts."""
    found = document(*arguments)
    assert set(found) == {"items", "next_cursor"}
    assert found["next_cursor"] is None
    return found["items"]


def refused(*arguments: str) -> str:
    """Why it does nothing: one line."""
    with pytest.raises(CommandError) as error:
        printed(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)
