"""Answers that say no."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from orchestrator.core import executions
from tests.core.api.client import BASE

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path", ["/nothing", "/executions/", "/executions/x/y/z", "/docs/x", "/%00"]
)
def test_unknown_route_is_a_problem(caller, path):
    assert caller.get(path).status_code == 404
    assert caller.post(path, {}).status_code == 404


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_wrong_method_is_a_problem_and_says_which_are_right(caller, method):
    response = getattr(caller.client, method)(f"{BASE}/executions")
    assert response.status_code == 405
    assert response["Content-Type"] == "application/problem+json"
    assert {"GET", "POST"} == set(response["Allow"].split(", "))


def test_head_answers_like_get(caller):
    assert caller.client.head(f"{BASE}/workers").status_code == 200


def test_unexpected_fault_says_nothing_of_the_inside(caller, action, monkeypatch, caplog):
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(executions, "request", fail)
    with override_settings(DEBUG=True):
        response = caller.post("/executions", {"action_ref": "core.echo"})
    assert response.status_code == 500
    assert "swordfish" not in response.content.decode()
    assert "swordfish" in caplog.text


@pytest.mark.parametrize(
    "place", ["orchestrator.core.clock.now", "orchestrator.core.executions.request"]
)
def test_database_that_is_down_is_503(caller, action, monkeypatch, place):
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused by 10.0.0.1")

    monkeypatch.setattr(place, fail)
    response = caller.post("/executions", {"action_ref": "core.echo"})
    assert response.status_code == 503
    assert "Retry-After" in response
    assert "10.0.0.1" not in response.content.decode()
