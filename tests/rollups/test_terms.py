"""A search that names causes finds the executions that failed of them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from orchestrator.core import search
from orchestrator.core.models import Execution
from orchestrator.rollups.models import FailureGroup
from tests.factories import NOW, make_action
from tests.principals import ROOT, given, principal
from tests.rollups.conftest import roll_up

Fails = Callable[..., Execution]

pytestmark = pytest.mark.django_db


@pytest.fixture
def failures(failed: Fails) -> dict[str, list[UUID]]:
    """The executions of each cause, by its number."""
    action = make_action("core.print")
    ids = {
        "no route to printer #": [failed(f"no route to printer {n}", action=action) for n in "12"],
        "out of paper": [failed("out of paper", action=action)],
    }
    roll_up()
    numbers = {group.sample: str(group.pk) for group in FailureGroup.objects.all()}
    return {numbers[sample]: [each.pk for each in rows] for sample, rows in ids.items()}


def found(text: str) -> set[UUID]:
    wanted = search.read(text, search.Asked(ROOT, NOW))
    return {row.pk for row in search.find(wanted, Execution.objects.all(), limit=20).rows}


def test_a_cause_several_and_none_of_them_are_found(failures: dict[str, list[UUID]]) -> None:
    route, paper = failures
    assert found(f"cause:{route}") == set(failures[route])
    assert found(f"cause:{route},{paper}") == {*failures[route], *failures[paper]}
    assert found(f"-cause:{route} action:core.print") == set(failures[paper])
    assert found(f"cause:{route} created:<1h") == set(failures[route])


def test_an_index_leads_to_the_executions_of_a_cause(failures: dict[str, list[UUID]]) -> None:
    wanted = search.read(f"cause:{next(iter(failures))}", search.Asked(ROOT, NOW))
    assert wanted.is_served_by_index


@pytest.mark.parametrize("text", ["cause:99999", "cause:x", "cause:²", f"cause:{10**18}9"])
def test_a_number_without_a_cause_is_a_mistake(text: str, failures: dict[str, list[UUID]]) -> None:
    with pytest.raises(search.NotUnderstood) as refused:
        search.read(text, search.Asked(ROOT, NOW))
    (mistake,) = refused.value.mistakes
    assert text[mistake.start : mistake.end] == text.removeprefix("cause:")


def test_a_cause_of_a_pack_out_of_reach_is_as_one_that_is_not_there(
    failures: dict[str, list[UUID]],
) -> None:
    asked = search.Asked(principal(given("executions.read", packs=["other"])), NOW)
    with pytest.raises(search.NotUnderstood, match="no cause has the number"):
        search.read(f"cause:{next(iter(failures))}", asked)


def test_the_key_is_completed() -> None:
    (suggestion,) = search.complete("cau", 3, search.Asked(ROOT, NOW))
    assert suggestion.text == "cause:"
