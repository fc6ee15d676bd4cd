"""The rules of policies find what breaks them, and nothing where they hold."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.chaos import checker, effects, policy_rules, spans
from tests.chaos.facts import Event, Evidence
from tests.chaos.stories import event, row, truth

ACTION = row().action
LIMITS = {ACTION: 1}


def limited(**changes: Any) -> Evidence:
    """Two executions of an action that may run once at a time."""
    rows = [row(), dataclasses.replace(row(), execution="e2")]
    return truth(**{"rows": rows, "limits": LIMITS} | changes)


def beside(*events: Event) -> list[Event]:
    """Events of a second execution."""
    return [dataclasses.replace(each, execution="e2") for each in events]


LIES = {
    "two at once, and the policy says one": (
        policy_rules.policies_hold,
        limited(events=[event("schedule"), event("claim"), *beside(event("schedule"))]),
    ),
    "a slot that nobody forgets": (
        policy_rules.nothing_is_left_of_policies,
        limited(policy_rows={"slots": 1, "waits": 0}),
    ),
}

TRUTHS = {
    "one after the other": limited(events=[*truth().events, *beside(*truth().events)]),
    "one more after the first went back": limited(
        events=[event("schedule"), event("give_back"), *beside(event("schedule"))]
    ),
    "two at once of an action without a policy": limited(
        limits={}, events=[event("schedule"), *beside(event("schedule"))]
    ),
}


def test_policy_that_keeps_its_promise_is_no_violation() -> None:
    for story, evidence in TRUTHS.items():
        assert checker.check(evidence, policy_rules.RULES) == [], story


def test_nothing_is_promised_while_a_policy_is_at_its_limit() -> None:
    full = limited(events=[event("schedule", at=100.0), event("complete", at=170.0)])
    assert effects.at_policy(full, ACTION) == [(100.0, 170.0)]
    assert effects.at_policy(full, "chaos.other") == []


def test_place_is_free_if_nobody_takes_it_soon() -> None:
    first = [event("schedule", at=100.0), event("complete", at=110.0)]
    soon = limited(events=[*first, *beside(event("schedule", at=111.0))])
    assert effects.at_policy(soon, ACTION) == [(100.0, spans.FOREVER)]
    late = limited(events=[*first, *beside(event("schedule", at=113.0))])
    assert effects.at_policy(late, ACTION) == [(100.0, 110.0), (113.0, spans.FOREVER)]
