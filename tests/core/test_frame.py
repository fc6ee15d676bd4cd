"""What apps bring can be found where they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils.module_loading import import_string

from orchestrator.core import frame
from orchestrator.core.frame import MusterApp, Named


def named(thing: Any) -> Iterator[str]:
    """Every dotted path in what an app brings."""
    if isinstance(thing, Named):
        yield thing.path
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            yield from named(getattr(thing, field.name))


KINDS = [name for name, value in vars(MusterApp).items() if value == ()]
"""What an app may bring."""


def paths() -> list[str]:
    """Of all that installed apps bring."""
    brought = [thing for app in frame.ours() for kind in KINDS for thing in getattr(app, kind)]
    machines = [life.machine for life in frame.collect(lambda app: app.lives)]
    routers = [router for _, router in frame.collect(lambda app: app.api_routers)]
    return [*(path for thing in brought for path in named(thing)), *routers, *machines]


@pytest.mark.parametrize("path", paths())
def test_path_leads_somewhere(path: str) -> None:
    assert import_string(path) is not None


def test_app_that_brings_nothing_leaves_it_out() -> None:
    class Empty(MusterApp):
        name = "orchestrator"

    assert len(KINDS) > 5
    assert all(getattr(Empty, kind) == () for kind in KINDS)


def test_each_app_is_the_default_of_its_module() -> None:
    """Django would take its own class instead, without a word, and nothing of the app's."""
    assert [app.label for app in frame.ours()] == [
        "orchestrator",
        "inquiries",
        "workflows",
        "access",
        "policies",
        "rollups",
        "queues",
        "automation",
        "bulk",
        "notifications",
        "console",
        "drills",
    ]


def test_named_function_is_called_with_what_it_is_given() -> None:
    assert Named("operator.add")(2, 3) == 5
