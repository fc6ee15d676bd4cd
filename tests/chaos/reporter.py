"""A client that reports events while everything breaks, and knows what the rules must answer."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.chaos.facts import Violation
from tests.chaos.storm import Beside

if TYPE_CHECKING:
    from tests.chaos.storm import Storm

PACK = str(Path(__file__).parent / "reports")
TYPE = "reports.alert"
RULE = "events_are_answered_as_the_rules_say"

REPEATED_SHARE = 0.2
MOST_AT_ONCE = 25
GIVE_UP_SECONDS = 120.0

EVENTS = """
    SELECT id, dedup_key, matched FROM automation_event WHERE type_ref = 'reports.alert'
"""
ANSWERS = """
    SELECT event.dedup_key, rule.ref, answer.state, answer.reason, execution.status,
        execution.idempotency_key = 'muster:enforcement:' || answer.id AS is_its_own
    FROM automation_enforcement AS answer
    JOIN automation_event AS event ON event.id = answer.event_id
    JOIN automation_rule AS rule ON rule.id = answer.rule_id
    LEFT JOIN orchestrator_execution AS execution ON execution.id = answer.execution_id
    WHERE event.type_ref = 'reports.alert'
"""


def expected(number: int) -> dict[str, tuple[str, str]]:
    """What the rules of the pack `reports` answer to the event with this number: (state, reason)
    by rule. The same is written down in that pack, a second time."""
    done = ("executed", "")
    answers = {"reports.even" if number % 2 == 0 else "reports.odd": done}
    if number % 10 == 0:
        answers["reports.tenth"] = done
    if number % 10 == 2:
        answers["reports.valueless"] = ("rejected", "parameters_failed")
    return answers


class Reporter(Beside):
    """Has so many events recorded over so many seconds, a fifth of them a second time. Their
    numbers are their keys, so what is not answered is sent again."""

    def __init__(self, storm: Storm, *, events: int, seconds: float, seed: int) -> None:
        super().__init__(name="reporter", daemon=True)
        self.events, self.seconds = events, seconds
        self.recorded: dict[int, str] = {}
        """Ids of events by number, as the API said them."""
        self.repeated = 0
        self._storm, self._rng = storm, random.Random(seed)
        self._wrong: list[Violation] = []

    def run(self) -> None:
        try:
            with self._storm.client.http() as http:
                self._run(http)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self.failure = error

    def violations(self) -> list[Violation]:
        """What the database says otherwise than the API, or than the rules."""
        events = self._storm.database.select(EVENTS)
        answers = self._storm.database.select(ANSWERS)
        return [
            *self._wrong,
            *check_events(self.recorded, events),
            *check_answers(self.recorded, answers),
        ]

    def _run(self, http: httpx.Client) -> None:
        began = time.monotonic()
        while len(self.recorded) < self.events:
            due = began + self.seconds * len(self.recorded) / self.events
            time.sleep(max(0.0, due - time.monotonic()))
            first = len(self.recorded)
            size = self._rng.randint(1, min(MOST_AT_ONCE, self.events - first))
            self._report(http, list(range(first, first + size)))
            again = round(len(self.recorded) * REPEATED_SHARE) - self.repeated
            if again > 0:
                # within one request, too
                self._report(http, self._rng.choices(range(len(self.recorded)), k=again))
                self.repeated += again

    def _report(self, http: httpx.Client, numbers: Sequence[int]) -> None:
        bodies = [self._body(number) for number in numbers]
        is_single = len(numbers) == 1 and self._rng.random() < 0.5
        path, body = ("/events", bodies[0]) if is_single else ("/events/bulk", {"events": bodies})
        answer = _answer(http, path, body)
        accepted = [answer] if is_single else answer["events"]
        for number, each in zip(numbers, accepted, strict=True):
            known = self.recorded.setdefault(number, each["id"])
            if known != each["id"]:
                self._wrong.append(Violation(RULE, f"{number} is {known} and {each['id']}"))

    def _body(self, number: int) -> dict[str, Any]:
        payload = {
            "number": number,
            "is_even": number % 2 == 0,
            "of_ten": number % 10,
            "trace": str(self._storm.trace.path),
        }
        return {"trigger": {"type": TYPE}, "payload": payload, "key": str(number)}


def _answer(http: httpx.Client, path: str, body: Any) -> Any:
    """What was accepted, whatever it takes."""
    until = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < until:
        try:
            answer = http.post(path, json=body)
        except httpx.HTTPError:
            answer = None
        if answer is not None and answer.status_code < 500:
            assert answer.status_code in (200, 201), answer.text
            return answer.json()
        time.sleep(0.2)
    raise TimeoutError(f"{path}: no answer for {GIVE_UP_SECONDS:.0f} s")


def check_events(recorded: dict[int, str], rows: Sequence[dict[str, Any]]) -> Iterator[Violation]:
    """Each number that was accepted is one event, the one that the API named."""
    ids = {int(row["dedup_key"]): str(row["id"]) for row in rows}
    if len(ids) != len(rows):
        yield Violation(RULE, f"{len(rows)} events for {len(ids)} keys")
    for number in sorted(recorded.keys() ^ ids.keys()):
        yield Violation(RULE, f"event {number} was accepted or is there, and not both")
    for number in recorded.keys() & ids.keys():
        if recorded[number] != ids[number]:
            yield Violation(RULE, f"event {number} is not the one that was named")


def check_answers(recorded: dict[int, str], rows: Sequence[dict[str, Any]]) -> Iterator[Violation]:
    """Each event has the answers that the rules give, each of them once, and what is executed has
    an execution of its own."""
    numbers = Counter((int(row["dedup_key"]), row["ref"]) for row in rows)
    for (number, ref), times in numbers.items():
        if times > 1:
            yield Violation(RULE, f"{ref} answered event {number} {times} times")
    found: dict[int, dict[str, tuple[str, str]]] = {number: {} for number in recorded}
    for row in rows:
        number = int(row["dedup_key"])
        found.setdefault(number, {})[row["ref"]] = (row["state"], row["reason"])
        if row["state"] == "executed" and not row["is_its_own"]:
            yield Violation(RULE, f"{row['ref']} has no execution of its own for event {number}")
    for number in recorded:
        if found[number] != expected(number):
            yield Violation(RULE, f"event {number} has the answers {found[number]}")
