"""The cost of finding the rules that match an event: 1,000 rules of one trigger."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from benchmarks.samples import Benchmark, Goal, Plan, Sample
from benchmarks.stage import Stage
from orchestrator.automation.criteria import BookRule, Facts, RuleBook, compile_criteria

RULES = 1_000
EVENTS = 500
BYTES = 1_024

Criteria = dict[str, Any]


def _payload(number: int) -> Criteria:
    """A monitoring alert of 1 KiB."""
    payload = {
        "host": f"host-{number % RULES}",
        "level": number % 7,
        "check": {"name": "disk", "state": "critical"},
        "tags": ["prod", "eu"],
        "output": "",
    }
    rest = BYTES - len(json.dumps(payload))
    return payload | {"output": "x" * rest}


def _eq_in_common(number: int) -> Criteria:
    return {
        "trigger.host": {"type": "eq", "pattern": f"host-{number}"},
        "trigger.level": {"type": "ge", "pattern": 0},
        "trigger.check.state": {"type": "in", "pattern": ["warning", "critical"]},
    }


def _no_eq(number: int) -> Criteria:
    return {
        "trigger.host": {"type": "endswith", "pattern": f"-{number}"},
        "trigger.level": {"type": "ge", "pattern": 0},
        "trigger.check.state": {"type": "in", "pattern": ["warning", "critical"]},
    }


def _all_asked(number: int) -> Criteria:
    """Criteria of which only the last one that is asked does not hold."""
    return {
        "trigger.level": {"type": "ge", "pattern": 0},
        "trigger.check.state": {"type": "in", "pattern": ["warning", "critical"]},
        "trigger.host": {"type": "matchwildcard", "pattern": f"*-{number}"},
    }


BOOKS: dict[str, Callable[[int], Criteria]] = {
    "an eq in common": _eq_in_common,
    "no eq": _no_eq,
    "no eq, every criterion asked": _all_asked,
}


def measure(stage: Stage, plan: Plan) -> Iterator[Sample]:
    events = [Facts(_payload(number), datetime.now(UTC)) for number in range(EVENTS)]
    books = {
        name: RuleBook(BookRule(n, compile_criteria(of(n))) for n in range(RULES))
        for name, of in BOOKS.items()
    }
    for number in range(1, plan.rounds + 1):
        for name, book in books.items():
            times = sorted(_milliseconds(book, event) for event in events)
            yield Sample(f"{name}, p50", number, times[EVENTS // 2], "ms")
            yield Sample(f"{name}, p99", number, times[EVENTS * 99 // 100], "ms")


def _milliseconds(book: RuleBook[int], event: Facts) -> float:
    began = time.perf_counter()
    found = [key for key, outcome in book.matching(event) if outcome.matched]
    passed = time.perf_counter() - began
    assert found == [int(event.trigger["host"].removeprefix("host-"))]
    return passed * 1_000


BENCHMARK = Benchmark(
    name="rulebook",
    title="Finding the rules that match an event, 1,000 rules on one trigger",
    measure=measure,
    notes=(
        "Three criteria each, a payload of 1 KiB, one rule matches. In this process, without a "
        "database: it is what matching an event adds to its statements."
    ),
    goals=[
        Goal(
            what="1,000 rules with an eq in common, p50",
            subject="an eq in common, p50",
            unit="ms",
            at_most=0.3,
        ),
        Goal(what="1,000 rules without, p50", subject="no eq, p50", unit="ms", at_most=4.0),
    ],
)
