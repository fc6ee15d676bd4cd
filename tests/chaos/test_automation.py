"""The storm of events in small, and what its verdict rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import automation, reporter, storm
from tests.chaos.outcome import summary
from tests.chaos.reporter import check_answers, check_events, expected
from tests.scenarios.installation import Backend

RECORDED = {0: "a", 1: "b", 2: "c"}
EVENTS = [{"id": id, "dedup_key": str(number)} for number, id in RECORDED.items()]


def answer(number: int, ref: str, **values: Any) -> dict[str, Any]:
    known = {"dedup_key": str(number), "ref": f"reports.{ref}", "reason": "", "is_its_own": True}
    return {**known, "state": "executed", **values}


ANSWERS = [
    answer(0, "even"),
    answer(0, "tenth"),
    answer(1, "odd"),
    answer(2, "even"),
    answer(2, "valueless", state="rejected", reason="parameters_failed", is_its_own=None),
]


def test_rules_of_the_pack_are_those_that_are_expected() -> None:
    rules = {path.stem for path in (Path(reporter.PACK) / "rules").iterdir()}
    answered = {ref.removeprefix("reports.") for number in range(10) for ref in expected(number)}
    assert rules == answered


def test_verdict_is_good_where_all_is_as_it_should_be() -> None:
    assert not list(check_events(RECORDED, EVENTS))
    assert not list(check_answers(RECORDED, ANSWERS))


@pytest.mark.parametrize(
    "events",
    [
        EVENTS[1:],
        [*EVENTS, {"id": "d", "dedup_key": "0"}],
        [*EVENTS, {"id": "d", "dedup_key": "9"}],
        [{"id": "x", "dedup_key": "0"}, *EVENTS[1:]],
    ],
)
def test_event_that_is_lost_doubled_or_another_is_a_violation(events: list[Any]) -> None:
    assert list(check_events(RECORDED, events))


@pytest.mark.parametrize(
    "answers",
    [
        ANSWERS[1:],
        [*ANSWERS, answer(1, "odd")],
        [*ANSWERS, answer(1, "even")],
        [answer(0, "even", is_its_own=None), *ANSWERS[1:]],
        [answer(0, "even", state="created"), *ANSWERS[1:]],
    ],
)
def test_answer_that_is_lost_doubled_or_another_is_a_violation(answers: list[Any]) -> None:
    assert list(check_answers(RECORDED, answers))


@pytest.mark.slow
@pytest.mark.scenario
@pytest.mark.timeout(900)
@pytest.mark.alone
def test_events_are_answered_as_the_rules_say_while_services_die(real: Backend, seed: int) -> None:
    """`make chaos ARGS=automation` is the large one."""
    outcome = storm.run(
        real,
        executions=30,
        faults_of_a_kind=1,
        submit_seconds=15,
        seed=seed,
        executors=2,
        sensors=1,
        pack_paths=[reporter.PACK],
        beside=lambda of: reporter.Reporter(of, events=200, seconds=15, seed=seed),
        kinds=automation.KINDS,
    )
    assert not outcome.violations, summary(outcome)
