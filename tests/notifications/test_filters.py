"""Filters find what they ask for, and refuse what nothing can match."""

from __future__ import annotations

import pytest

from orchestrator.notifications import filters
from orchestrator.notifications.filters import Filter, WrongFilter
from tests.notifications.play import notification

ONE = notification("execution.running", id="abc", pack="billing", owner="ada")


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(types=("execution.running",)),
        Filter(types=("task.*", "execution.*")),
        Filter(types=("*.running",)),
        Filter(entities=("execution",)),
        Filter(entities=("execution:abc",)),
        Filter(packs=("bill*",)),
        Filter(owners=("ada",)),
        Filter(types=("execution.*",), packs=("billing",), owners=("bob", "ada")),
    ],
)
def test_filter_matches_and_is_found_under_its_keys(wanted: Filter) -> None:
    assert wanted.matches(ONE)
    assert set(wanted.found_under()) & set(filters.keys_of(ONE))


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(types=("execution.failed",)),
        Filter(types=("task.*",)),
        Filter(entities=("execution:abd",)),
        Filter(entities=("task",)),
        Filter(packs=("shipping",)),
        Filter(owners=("bob",)),
        Filter(types=("execution.*",), packs=("shipping",)),
    ],
)
def test_filter_leaves_out_what_is_not_asked_for(wanted: Filter) -> None:
    assert not wanted.matches(ONE)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("all", Filter()),
        ("entity_type:rule", Filter(entities=("rule",))),
        ("entity:execution:abc", Filter(entities=("execution:abc",))),
        ("user:ada", Filter(owners=("ada",))),
        ("user:rule:shop.ship", Filter(owners=("rule:shop.ship",))),
        ("notification_type:execution.failed", Filter(types=("execution.failed",))),
        ("pack:shop", Filter(packs=("shop",))),
    ],
)
def test_subscription_is_read(text: str, wanted: Filter) -> None:
    assert filters.of_text(text) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expected one of all, entity_type:T"),
        ("everything", "Expected one of all, entity_type:T"),
        ("entity_type:exexution", "entity: expected one of bulk, dlq, enforcement, event"),
        ("entity:execution", "Expected one of all"),
        ("entity:execution:", "entity: expected such as execution:ID"),
        ("notification_type:execution failed", "type: expected such as execution.failed"),
        ("notification_type:executions.failed", "entity: expected one of"),
        ("user:" + "x" * 201, "Expected 1 to 200 characters, found 201"),
    ],
)
def test_wrong_subscription_says_what_is_expected(text: str, why: str) -> None:
    with pytest.raises(WrongFilter, match=why.replace("(", r"\(")):
        filters.of_text(text)


def test_a_filter_has_at_most_twenty_values() -> None:
    filters.of_query((), (), [f"p{number}" for number in range(20)], ())
    with pytest.raises(WrongFilter, match="at most 20 filters, found 21"):
        filters.of_query(["execution.*"], (), [f"p{number}" for number in range(20)], ())
