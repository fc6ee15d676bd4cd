"""Each bad end needs a cause: what accounts for one, and what does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import accounting, checker
from tests.chaos.effects import EFFECTS
from tests.chaos.facts import Evidence, Life, Line, Terms
from tests.chaos.faults import EMBEDDED_FILES, EVERYWHERE, OF_GATES, OF_SENSORS, ON_SERVERS
from tests.chaos.stories import RESULT, E, ended, event, fault, row, truth

ENDS = accounting.bad_ends_are_accounted_for
LATE_GIVE_BACK = [event("schedule"), event("claim"), event("give_back", at=105.9)]
LIE_OF_THE_CLAIM = f"worker {accounting.LOST_ANSWER} lie"
FULL = [
    event(what, execution=f"{worker}-{slot}", actor=worker, at=at)
    for worker in ("w1", "w2")
    for slot in range(Terms().slots)
    for what, at in (("claim", 105.0), ("complete", 150.0))
]
"""Others have every slot for most of the time."""
AWAY = [Life("w1", 10.0, 99.0, -9), Life("w2", 10.0, 99.0, -9)]

LIES: dict[str, tuple[Callable[..., Any], Evidence]] = {
    "lost by a worker that nothing had hit": (ENDS, ended("abandon", "worker_lost", "abandoned")),
    "lost by another worker than the one that was hit": (
        ENDS,
        ended("abandon", "worker_lost", "abandoned", faults=[fault("kill worker", 104.0, 0, "w2")]),
    ),
    "lost by a worker that was hit long before": (
        ENDS,
        ended("abandon", "worker_lost", "abandoned", faults=[fault("kill worker", 90.0, 0, "w1")]),
    ),
    "lost in a blink": (
        ENDS,
        ended(
            "abandon", "worker_lost", "abandoned", faults=[fault("freeze worker", 104.0, 1, "w1")]
        ),
    ),
    "lost with the broker": (
        ENDS,
        ended(
            "abandon", "process_lost", "abandoned", faults=[fault("kill broker", 104.0, 3, "w1")]
        ),
    ),
    "process lost without a kill": (ENDS, ended("abandon", "process_lost", "abandoned")),
    "idempotent, and lost with a worker that stops": (
        ENDS,
        ended(
            "abandon",
            "process_lost",
            "abandoned",
            row={"idempotent": True},
            faults=[fault("stop worker", 101.0, 10, "w1")],
        ),
    ),
    "attempt that was lost for nothing, and tried again": (
        ENDS,
        truth(
            rows=[row(attempt=2, idempotent=True)],
            events=[
                event("schedule"),
                event("claim"),
                event("retry", reason="run_deadline_passed", at=108.2),
                event("schedule", attempt=2, at=108.3),
                event("claim", attempt=2, at=108.4),
                event("complete", attempt=2, at=109.0),
            ],
            lines=[Line("start", E, 2, 8, 108.5), Line("end", E, 2, 8, 108.9, RESULT)],
        ),
    ),
    "times out, and its action came to its end": (
        ENDS,
        ended(
            "time_out",
            "run_timeout",
            "timeout",
            lines=[Line("start", E, 1, 7, 100.3), Line("end", E, 1, 7, 100.9, RESULT)],
        ),
    ),
    "times out, and was asked to be quick": (ENDS, ended("time_out", "run_timeout", "timeout")),
    "times out on a living worker": (ENDS, ended("time_out", "run_deadline_passed", "timeout")),
    "fails, and its action does not fail": (ENDS, ended("fail", "action_failed", "failed")),
    "expires beside a fit worker": (ENDS, ended("expire", "queue_ttl_expired", "failed")),
    "is not started beside a fit worker": (ENDS, ended("expire", "scheduled_timeout", "failed")),
    "is not started, and only the broker was away": (
        ENDS,
        ended(
            "expire", "scheduled_timeout", "failed", faults=[fault("freeze broker", 99, 2, "w1")]
        ),
    ),
    "unroutable beside a fit worker": (ENDS, ended("expire", "unroutable", "failed", at=100.2)),
    "expires before its own TTL": (
        ENDS,
        ended("expire", "queue_ttl_expired", "failed", at=103.0, row={"own_ttl_seconds": 5.0}),
    ),
    "pinned to a fit worker, and expires after its TTL": (
        ENDS,
        ended("expire", "queue_ttl_expired", "failed", row={"pinned": "w1"}),
    ),
    "no worker, and only the broker was away": (
        ENDS,
        ended(
            "reject",
            "no_worker_available",
            "failed",
            faults=[fault("freeze broker", 95, 9, "w1", "w2")],
        ),
    ),
    "unroutable, as the exchange was deleted": (
        ENDS,
        ended(
            "expire",
            "unroutable",
            "failed",
            at=100.2,
            faults=[fault("delete exchange", 100.15, 0, "w1", "w2")],
        ),
    ),
    "lost by a worker that two short faults have hit": (
        ENDS,
        ended(
            "abandon",
            "worker_lost",
            "abandoned",
            faults=[
                fault("cut worker from database", 102.0, 1.0, "w1"),
                fault("freeze database", 104.5, 1.4, "w1"),
            ],
        ),
    ),
    "deadline passed beside a free slot": (
        ENDS,
        ended("reject", "deadline_passed", "failed", at=160.5, events=FULL[2:]),
    ),
    "no worker, and there was one": (ENDS, ended("reject", "no_worker_available", "failed")),
    "deadline passed before it had come": (ENDS, ended("reject", "deadline_passed", "failed")),
    "deadline passed while workers were fit": (
        ENDS,
        ended("reject", "deadline_passed", "failed", at=160.5),
    ),
    "reason that nobody knows": (ENDS, ended("fail", "bad_luck", "failed")),
    "attempts were left": (
        accounting.attempts_left_are_used,
        ended(
            "abandon",
            "worker_lost",
            "abandoned",
            row={"idempotent": True, "max_attempts": 2},
            faults=[fault("kill worker", 104.0, 0, "w1")],
        ),
    ),
    "attempts were left, and it never started": (
        accounting.attempts_left_are_used,
        ended(
            "expire",
            "queue_ttl_expired",
            "failed",
            row={"own_ttl_seconds": 5.0, "max_attempts": 2},
        ),
    ),
    "claimed on a living worker and never started": (
        accounting.claimed_is_started,
        ended("time_out", "run_deadline_passed", "timeout", lines=[]),
    ),
    "claimed from a frozen broker, and left for its deadline": (
        accounting.claimed_is_started,
        ended(
            "time_out",
            "run_deadline_passed",
            "timeout",
            lines=[],
            faults=[fault("freeze broker", 100.2, 9, "w1", "w2")],
        ),
    ),
    "claimed and given back late": (
        accounting.claimed_is_started,
        truth(events=[event("schedule"), event("claim"), event("give_back", at=107.0)], lines=[]),
    ),
    "claimed, and given back when the row of another one is free": (
        accounting.claimed_is_started,
        truth(
            events=LATE_GIVE_BACK,
            lines=[],
            faults=[
                dataclasses.replace(
                    fault("hold row locks", 101.0, 4.8), executions=frozenset({"another"})
                )
            ],
        ),
    ),
    "claimed and given back at the third heartbeat, though its answer was not lost": (
        accounting.claimed_is_started,
        truth(events=LATE_GIVE_BACK, lines=[], terms=Terms(heartbeat_seconds=2.0)),
    ),
    "claimed, never started, and tried again": (
        accounting.claimed_is_started,
        truth(
            events=[event("schedule"), event("claim"), event("retry", at=108.2)],
            lines=[],
        ),
    ),
    "more of a reason than the faults explain": (
        accounting.reasons_have_caps,
        ended("abandon", "worker_lost", "abandoned", faults=[]),
    ),
    "cancelled, and nobody asked": (
        accounting.reasons_have_caps,
        truth(rows=[row(status="cancelled", reason="cancelled")]),
    ),
    "worker that gave up for nothing": (
        accounting.workers_give_up_for_a_cause,
        truth(lives=[Life("w1", 10.0, 130.0, accounting.EXIT_LOST), Life("w2", 10.0)]),
    ),
    "worker that gave up as the clock was stepped": (
        accounting.workers_give_up_for_a_cause,
        truth(
            lives=[Life("w1", 10.0, 130.0, accounting.EXIT_LOST), Life("w2", 10.0)],
            faults=[fault("step clock forward", 129.0, 0, "w1", "w2")],
            clock_steps=[129.0],
        ),
    ),
}

TRUTHS: dict[str, Evidence] = {
    "lost with its worker": ended(
        "abandon", "worker_lost", "abandoned", faults=[fault("kill worker", 104.0, 0, "w1")]
    ),
    "lost with a frozen worker": ended(
        "abandon", "worker_lost", "abandoned", faults=[fault("freeze worker", 102.0, 7, "w1")]
    ),
    "lost with a worker that had no database for long": ended(
        "abandon",
        "worker_lost",
        "abandoned",
        faults=[fault("cut worker from database", 101.0, 6, "w1")],
    ),
    "lost with a worker that was connected again a moment too late": ended(
        "abandon",
        "worker_lost",
        "abandoned",
        faults=[fault("cut worker from database", 104.0, 1.6, "w1")],
    ),
    "lost with a worker that two faults in a row kept from the database": ended(
        "abandon",
        "worker_lost",
        "abandoned",
        faults=[
            fault("cut worker from database", 103.0, 1.5, "w1"),
            fault("freeze database", 104.0, 1.5, "w1"),
        ],
    ),
    "lost by a worker that had no time for a heartbeat between two faults": ended(
        "abandon",
        "worker_lost",
        "abandoned",
        faults=[
            fault("freeze database", 103.0, 1.0, "w1"),
            fault("restart database", 104.5, 1.5, "w1"),
        ],
    ),
    "attempts were left, and the clock was set in that moment": ended(
        "abandon",
        "worker_lost",
        "abandoned",
        row={"idempotent": True, "max_attempts": 2},
        faults=[fault("kill worker", 104.0, 0, "w1")],
        clock_steps=[107.9],
    ),
    "all slots were taken for all its time": ended(
        "reject", "deadline_passed", "failed", at=160.5, events=FULL
    ),
    "process killed": ended(
        "abandon", "process_lost", "abandoned", faults=[fault("kill pool child", 107.5, 0, "w1")]
    ),
    "not to be repeated, and its worker stops": ended(
        "abandon", "process_lost", "abandoned", faults=[fault("stop worker", 101.0, 10, "w1")]
    ),
    "end could not be written": ended(
        "time_out",
        "run_deadline_passed",
        "timeout",
        faults=[fault("freeze database", 101.0, 7, "w1", "w2")],
    ),
    "fails as it should": ended("fail", "action_failed", "failed", row={"action": "chaos.fails"}),
    "was asked to take long": ended("time_out", "run_timeout", "timeout", row={"seconds": 9.0}),
    "its deadline cut it short": ended(
        "time_out", "run_timeout", "timeout", at=102.0, row={"deadline_at": 101.9, "seconds": 0.2}
    ),
    "waited as long as it asked to": ended(
        "expire", "queue_ttl_expired", "failed", row={"own_ttl_seconds": 8.0}
    ),
    "waited for the one worker that it may run on": ended(
        "expire", "scheduled_timeout", "failed", row={"pinned": "w1"}, lives=AWAY
    ),
    "expired before its dispatch, as no worker ever was": ended(
        "expire", "queue_ttl_expired", "failed", at=100.05, row={"pinned": "ghost"}
    ),
    "all workers were away": ended("reject", "no_worker_available", "failed", lives=AWAY),
    "asked for a short deadline": ended(
        "reject", "deadline_passed", "failed", at=102.1, row={"deadline_at": 102.0}
    ),
    "asked for a short deadline, of an API that came back after ten seconds": ended(
        "reject",
        "deadline_passed",
        "failed",
        at=112.1,
        row={"created_at": 110.0, "deadline_at": 112.0},
    ),
    "no worker for all its time": ended(
        "reject", "deadline_passed", "failed", at=160.5, lives=AWAY
    ),
    "open when the clock was stepped": ended(
        "reject", "deadline_passed", "failed", at=101.0, clock_steps=[100.9]
    ),
    "claimed and given back": truth(
        rows=[row(attempt=2)],
        events=[
            event("schedule"),
            event("claim"),
            event("give_back", reason="given_back", at=100.5),
            event("schedule", attempt=2, at=100.6),
            event("claim", attempt=2, at=100.7),
            event("complete", attempt=2),
        ],
        lines=[Line("start", E, 2, 7, 100.8), Line("end", E, 2, 7, 100.9, RESULT)],
    ),
    "claimed from a frozen broker and given back": truth(
        rows=[row(attempt=2, ended_at=108.0)],
        events=[
            event("schedule"),
            event("claim"),
            event("give_back", reason="given_back", at=106.5),
            event("schedule", attempt=2, at=106.6),
            event("claim", attempt=2, at=106.7),
            event("complete", attempt=2, at=108.0),
        ],
        lines=[Line("start", E, 2, 7, 106.8), Line("end", E, 2, 7, 107.9, RESULT)],
        faults=[fault("freeze broker", 100.2, 6, "w1", "w2")],
    ),
    "worker that was frozen gave up": truth(
        lives=[Life("w1", 10.0, 130.0, accounting.EXIT_LOST), Life("w2", 10.0)],
        faults=[fault("freeze worker", 122.0, 7, "w1")],
    ),
    "claimed, and given back when its row is free": truth(
        events=LATE_GIVE_BACK,
        lines=[],
        faults=[
            dataclasses.replace(
                fault("hold row locks", 101.0, 4.8),
                executions=frozenset({event("claim").execution}),
            )
        ],
    ),
    "claim whose answer was lost, given back at the third heartbeat": truth(
        events=LATE_GIVE_BACK,
        lines=[],
        terms=Terms(heartbeat_seconds=2.0),
        faults=[dataclasses.replace(fault("failpoint, lie", 100.3, 0), detail=LIE_OF_THE_CLAIM)],
    ),
    "cancelled as asked": truth(rows=[row(status="cancelled", reason="cancelled")], cancels=1),
}


RULES = (
    accounting.bad_ends_are_accounted_for,
    accounting.attempts_left_are_used,
    accounting.claimed_is_started,
    accounting.reasons_have_caps,
    accounting.workers_give_up_for_a_cause,
)


@pytest.mark.parametrize("story", TRUTHS)
def test_end_that_had_to_be_is_no_violation(story: str) -> None:
    assert checker.check(TRUTHS[story], RULES) == []


def test_every_kind_of_fault_says_what_it_does() -> None:
    others = {"failpoint, kill", "failpoint, lie", "machine stalled", "poison"}
    kinds = {*EVERYWHERE, *ON_SERVERS, *OF_SENSORS, *OF_GATES, *EMBEDDED_FILES}
    assert {*kinds, *others} == set(EFFECTS)


def test_fault_of_unknown_kind_accounts_for_nothing() -> None:
    evidence = ended(
        "abandon", "worker_lost", "abandoned", faults=[fault("act of god", 104.0, 9, "w1")]
    )

    assert list(ENDS(evidence))


def test_cap_of_a_reason_grows_with_the_faults() -> None:
    once = accounting.caps_of(truth(faults=[fault("kill worker", 50.0, 0, "w1")]))
    twice = accounting.caps_of(
        truth(faults=[fault("kill worker", 50.0, 0, "w1"), fault("kill worker", 70.0, 0, "w2")])
    )

    assert 0 < once["worker_lost"] < twice["worker_lost"]
    assert once["action_failed"] == 0
    assert "bad_luck" not in once
