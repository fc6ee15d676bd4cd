"""Actions that may be requested."""

from __future__ import annotations

import pytest

from tests.core.api.client import SCHEMA

pytestmark = pytest.mark.django_db


def test_actions(caller, action):
    (listed,) = caller.get("/actions").json()["items"]
    assert (listed["ref"], listed["pack"]) == ("core.echo", {"name": "core", "version": "1.0.0"})
    assert caller.get("/actions/core.echo").json()["parameters_schema"] == SCHEMA
