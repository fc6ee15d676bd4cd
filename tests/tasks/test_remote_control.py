"""Remote control: what a process leaves in Celery's register of commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from celery.worker import control

from tasks.remote_control import INSPECTION, RemoteControlStep


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A copy of Celery's, which is one for the whole process."""
    copied = dict(control.Panel.data)
    monkeypatch.setattr(control.Panel, "data", copied)
    return copied


def begin(settings: Any, allowed: str) -> None:
    settings.MUSTER = replace(settings.MUSTER, remote_control=allowed)
    step = RemoteControlStep(parent=None)
    if step.include_if(None):
        step.create(None)


def test_inspection_leaves_nothing_that_changes_something(
    settings: Any, register: dict[str, Any]
) -> None:
    begin(settings, "inspect")
    assert register.keys() & control.Panel.meta.keys() == INSPECTION
    assert {control.Panel.meta[name].type for name in INSPECTION} == {"inspect"}
    assert "dump_schedule" in register
    assert not register.keys() & {"shutdown", "hello", "objgraph", "revoke", "enable_events"}


def test_everything_stays_where_everything_is_allowed(
    settings: Any, register: dict[str, Any]
) -> None:
    begin(settings, "on")
    assert {"shutdown", "pool_grow", "ping"} <= register.keys()


def test_nothing_is_touched_where_it_is_off(settings: Any, register: dict[str, Any]) -> None:
    before = dict(register)
    begin(settings, "off")
    assert register == before
