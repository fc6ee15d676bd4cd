"""What apps bring can be found where they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils.module_loading import import_string

from orchestrator import frame
from orchestrator.frame import MusterApp, Named


def named(thing: Any) -> Iterator[str]:
    """Every dotted path in what an app brings."""
    if isinstance(thing, Named):
        yield thing.path
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            yield from named(getattr(thing, field.name))


def paths() -> list[str]:
    brought: list[Any] = [
        *frame.collect(lambda app: app.maintenance),
        *frame.collect(lambda app: app.executor_parts),
        *frame.collect(lambda app: app.pack_contents),
        *frame.collect(lambda app: app.when_clock_was_set_back),
    ]
    routers = [router for _, router in frame.collect(lambda app: app.api_routers)]
    return [*(path for thing in brought for path in named(thing)), *routers]


@pytest.mark.parametrize("path", paths())
def test_path_leads_somewhere(path: str) -> None:
    assert import_string(path) is not None


def test_app_that_brings_nothing_is_left_out() -> None:
    class Empty(MusterApp):
        name = "orchestrator"

    brought = vars(MusterApp)
    kinds = [name for name, value in brought.items() if value == ()]
    assert len(kinds) == 5
    assert all(getattr(Empty, kind) == () for kind in kinds)


def test_named_function_is_called_with_what_it_is_given() -> None:
    assert Named("operator.add")(2, 3) == 5
