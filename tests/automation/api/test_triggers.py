"""Triggers over the API: made once, tried out, refused with the place of each problem."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import trigger_types
from orchestrator.automation.models import Timer, Trigger
from tests import principals
from tests.automation import play
from tests.core.api.client import Caller, pointers
from tests.factories import NOW
from tests.principals import given

pytestmark = pytest.mark.usefixtures("db", "sent")

NIGHTLY: dict[str, Any] = {"type": "core.cron", "parameters": {"cron": "0 5 * * *"}}


@pytest.fixture(autouse=True)
def _installed(db: None) -> None:
    play.make_type()
    trigger_types.install_built_in(now=NOW)


def test_trigger_is_made_once_and_equal_parameters_are_the_same(caller: Caller) -> None:
    first = caller.post("/triggers", NIGHTLY)
    assert first.status_code == 201
    assert first["Location"] == f"/api/v1/triggers/{first.json()['id']}"
    again = caller.post("/triggers", NIGHTLY)
    assert (again.status_code, again.json()) == (200, first.json())
    assert Timer.objects.get().next_fire_at is None, "no rule waits for it"


def test_trigger_that_is_tried_out_is_not_made(caller: Caller) -> None:
    answer = caller.post("/triggers?dry_run=true", NIGHTLY)
    assert answer.status_code == 200
    assert answer.json()["parameters"] == NIGHTLY["parameters"]
    assert not Trigger.objects.filter(type__ref="core.cron").exists()
    assert caller.post("/triggers?dryrun=true", NIGHTLY).status_code == 422


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"type": "shop.x"}, "/type"),
        ({"type": "core.cron", "parameters": {"cron": "x"}}, "/parameters/cron"),
        (NIGHTLY | {"enabled": True}, "/enabled"),
    ],
)
def test_trigger_is_refused_with_the_place_of_the_problem(
    caller: Caller, body: dict[str, Any], place: str
) -> None:
    for path in ("/triggers", "/triggers?dry_run=true"):
        answer = caller.post(path, body)
        assert (answer.status_code, pointers(answer)) == (422, [place])


def test_callers_make_triggers_only_of_packs_where_they_may() -> None:
    other = principals.caller("other", given("author", packs=["mail"]))
    assert other.post("/triggers", {"type": "shop.order"}).status_code == 403
    author = principals.caller("author", given("author", packs=["shop"]))
    assert author.post("/triggers", {"type": "shop.order"}).status_code == 201
