"""Levels of isolation: what an installation asks for, and what a host can give."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from orchestrator.core import isolation
from settings import muster


@pytest.mark.parametrize(
    ("least", "user", "stated", "level"),
    [
        ("process", "", "trusted", "process"),
        ("process", "", "user", "user"),
        ("trusted", "", "trusted", "trusted"),
        ("trusted", "nobody", "trusted", "user"),
        ("process", "nobody", "process", "user"),
        ("process", "nobody", "container", "container"),
        ("container", "nobody", "process", "container"),
    ],
)
def test_installation_raises_levels_and_lowers_none(
    settings: Any, least: str, user: str, stated: str, level: str
) -> None:
    settings.MUSTER = replace(settings.MUSTER, least_isolation=least, action_user=user)
    assert isolation.strongest(stated, isolation.least()) == level


def test_default_of_the_installation_trusts_no_pack() -> None:
    assert muster.Muster().least_isolation == "process"
    assert muster.Muster().container_networks == ""


def test_unknown_level_is_refused_at_the_start() -> None:
    message = "MUSTER_LEAST_ISOLATION='none': expected trusted, process, user, container"
    with pytest.raises(ImproperlyConfigured, match=message):
        muster.from_environment({"MUSTER_LEAST_ISOLATION": "none"})


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("", "MUSTER_ACTION_USER is not set"),
        ("no-such-user", "and there is no such user"),
        ("root", "which is root: no action may be"),
    ],
)
def test_why_actions_have_no_user_is_told(settings: Any, user: str, why: str) -> None:
    settings.MUSTER = replace(settings.MUSTER, action_user=user)
    assert why in isolation.why_not("user")
    assert isolation.why_not("process") == ""


def test_only_root_can_change_users(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MUSTER = replace(settings.MUSTER, action_user="nobody")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert isolation.why_not("user") == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only a worker that runs as root can change users" in isolation.why_not("user")
