"""Judges a run from its evidence alone: pure functions, and nothing of Muster's own.

The evidence comes from outside of Muster: the ids that a client was given, the lines that
actions wrote, what the process table showed, the queues, and the rows as plain SQL reads them.
Even the table of transitions is written down here a second time.

All times are seconds since 1970, as `time.time()` gives them.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeVar

PROMISED_SECONDS = 20.0
"""An execution is over at most this long after its deadline."""

PROCESS_GRACE_SECONDS = 15.0
"""A process of an attempt may outlive its end this long."""

TERMINAL = frozenset({"completed", "failed", "timeout", "cancelled", "abandoned"})

POSSIBLE: Mapping[str, tuple[frozenset[str], str]] = {
    "schedule": (frozenset({"requested", "scheduling"}), "scheduled"),
    "wait": (frozenset({"requested"}), "scheduling"),
    "claim": (frozenset({"scheduled"}), "running"),
    "complete": (frozenset({"running", "canceling"}), "completed"),
    "fail": (frozenset({"running", "canceling"}), "failed"),
    "time_out": (frozenset({"running"}), "timeout"),
    "expire": (frozenset({"scheduled"}), "failed"),
    "reject": (frozenset({"requested", "scheduling"}), "failed"),
    "give_back": (frozenset({"scheduled", "running"}), "requested"),
    "retry": (frozenset({"scheduled", "running"}), "requested"),
    "cancel": (frozenset({"requested", "scheduling", "scheduled"}), "cancelled"),
    "request_cancel": (frozenset({"running"}), "canceling"),
    "confirm_cancel": (frozenset({"canceling"}), "cancelled"),
    "abandon": (frozenset({"running", "canceling"}), "abandoned"),
}
"""event -> (from any of these, to this one)."""


@dataclass(frozen=True)
class Accepted:
    """A line of the client's ledger: an id that Muster answered with."""

    execution: str
    at: float
    deadline_at: float
    action: str


@dataclass(frozen=True)
class Row:
    """An execution as the database has it at the end."""

    execution: str
    action: str
    idempotent: bool
    status: str
    reason: str
    attempt: int
    deadline_at: float
    ended_at: float | None
    digest: str = ""
    """Of the whole row, to see whether any of it changed."""


@dataclass(frozen=True)
class Event:
    """A row of an execution's history."""

    execution: str
    event: str
    from_status: str
    to_status: str
    attempt: int
    actor: str
    reason: str
    at: float


@dataclass(frozen=True)
class Line:
    """What an action wrote about itself: `start`, `end`, or `stop` when it was interrupted."""

    event: str
    execution: str
    attempt: int
    pid: int
    at: float


@dataclass(frozen=True)
class Sighting:
    """A process of an attempt that was alive when somebody looked."""

    execution: str
    attempt: int
    pid: int
    at: float


@dataclass(frozen=True)
class Fault:
    """Something that was broken, until it was whole again."""

    kind: str
    at: float
    until: float
    detail: str = ""


OfExecution = TypeVar("OfExecution", Event, Line)


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run."""

    accepted: Sequence[Accepted] = ()
    rows: Sequence[Row] = ()
    events: Sequence[Event] = ()
    """In the order in which the database numbered them."""
    lines: Sequence[Line] = ()
    sightings: Sequence[Sighting] = ()
    queues: Mapping[str, int] = field(default_factory=dict)
    """Messages in each queue at the end, ready or not acknowledged."""
    faults: Sequence[Fault] = ()
    database_outages: Sequence[tuple[float, float]] = ()
    """When the database could not be written: the promise's clock stands still."""
    terminal_digests: Mapping[str, str] = field(default_factory=dict)
    """The digest of a row when it was first seen to be over."""

    @cached_property
    def row_of(self) -> Mapping[str, Row]:
        return {row.execution: row for row in self.rows}

    @cached_property
    def history_of(self) -> Mapping[str, list[Event]]:
        return _grouped(self.events)

    @cached_property
    def starts_of(self) -> Mapping[str, list[Line]]:
        return _grouped([line for line in self.lines if line.event == "start"])


@dataclass(frozen=True)
class Violation:
    """A rule that did not hold, for one execution or for the whole."""

    rule: str
    detail: str
    execution: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.execution or 'the run'}: {self.detail}"


def check(evidence: Evidence) -> list[Violation]:
    """Every violation of every rule."""
    return [violation for rule in RULES for violation in rule(evidence)]


# --- the rules ---------------------------------------------------------------------------------


def accepted_is_over(evidence: Evidence) -> Iterator[Violation]:
    """What was accepted is there and has a terminal status; so has what nobody was told of."""
    for accepted in evidence.accepted:
        if accepted.execution not in evidence.row_of:
            yield Violation(
                "accepted_is_over", "accepted, and not in the database", accepted.execution
            )
    for row in evidence.rows:
        if row.status not in TERMINAL or row.ended_at is None:
            yield Violation("accepted_is_over", f"still {row.status}", row.execution)


def ends_once(evidence: Evidence) -> Iterator[Violation]:
    """Exactly one event leads to a terminal status, and it is the row's."""
    for row in evidence.rows:
        ends = [e for e in evidence.history_of.get(row.execution, ()) if e.to_status in TERMINAL]
        if len(ends) > 1:
            yield Violation("ends_once", f"ended {len(ends)} times", row.execution)
        elif row.status in TERMINAL and [e.to_status for e in ends] != [row.status]:
            told = ends[0].to_status if ends else "none"
            yield Violation(
                "ends_once", f"is {row.status}, and its history ends {told}", row.execution
            )


def ends_in_time(evidence: Evidence) -> Iterator[Violation]:
    """Over at most 20 s after the deadline that the client was told."""
    deadlines = {row.execution: row.deadline_at for row in evidence.rows}
    deadlines |= {accepted.execution: accepted.deadline_at for accepted in evidence.accepted}
    for row in evidence.rows:
        if row.ended_at is None:
            continue
        deadline_at = deadlines[row.execution]
        late_seconds = row.ended_at - deadline_at
        late_seconds -= _overlap(evidence.database_outages, deadline_at, row.ended_at)
        if late_seconds > PROMISED_SECONDS:
            detail = f"over {late_seconds:.1f} s after its deadline"
            yield Violation("ends_in_time", detail, row.execution)


def ends_with_a_reason(evidence: Evidence) -> Iterator[Violation]:
    for row in evidence.rows:
        if row.status in TERMINAL and not row.reason:
            yield Violation("ends_with_a_reason", f"{row.status} for no reason", row.execution)


def attempt_starts_once(evidence: Evidence) -> Iterator[Violation]:
    """No attempt is started twice, and none that was never claimed."""
    for execution, starts in evidence.starts_of.items():
        claimed = {
            event.attempt
            for event in evidence.history_of.get(execution, ())
            if event.event == "claim"
        }
        for attempt, count in Counter(line.attempt for line in starts).items():
            if count > 1:
                detail = f"attempt {attempt} started {count} times"
                yield Violation("attempt_starts_once", detail, execution)
            if attempt not in claimed:
                detail = f"attempt {attempt} started without a claim"
                yield Violation("attempt_starts_once", detail, execution)


def not_idempotent_starts_once(evidence: Evidence) -> Iterator[Violation]:
    """An action that must not be started twice is not, in whatever attempt."""
    for execution, starts in evidence.starts_of.items():
        row = evidence.row_of.get(execution)
        if row is not None and not row.idempotent and len(starts) > 1:
            attempts = sorted(line.attempt for line in starts)
            detail = f"not idempotent, and started in the attempts {attempts}"
            yield Violation("not_idempotent_starts_once", detail, execution)


def nothing_follows_the_end(evidence: Evidence) -> Iterator[Violation]:
    """A late result changes nothing: no history after the end, and the row stays as it was."""
    for execution, events in evidence.history_of.items():
        for before, after in itertools.pairwise(events):
            if before.to_status in TERMINAL:
                detail = f"{after.event} after it was {before.to_status}"
                yield Violation("nothing_follows_the_end", detail, execution)
    for row in evidence.rows:
        first = evidence.terminal_digests.get(row.execution)
        if first is not None and first != row.digest:
            detail = "its row changed after it was over"
            yield Violation("nothing_follows_the_end", detail, row.execution)


def completed_did_run(evidence: Evidence) -> Iterator[Violation]:
    """What is completed wrote its end, in the attempt that counted."""
    ended = {(line.execution, line.attempt) for line in evidence.lines if line.event == "end"}
    for row in evidence.rows:
        if row.status == "completed" and (row.execution, row.attempt) not in ended:
            detail = f"completed, and attempt {row.attempt} never came to its end"
            yield Violation("completed_did_run", detail, row.execution)


def processes_end(evidence: Evidence) -> Iterator[Violation]:
    """Nothing of an attempt is alive 15 s after Muster said that the attempt was over."""
    over_at: dict[tuple[str, int], float] = {}
    for event in evidence.events:
        if event.from_status in ("running", "canceling") and event.to_status != "canceling":
            over_at[event.execution, event.attempt] = event.at
    latest: dict[tuple[str, int], Sighting] = {}
    for sighting in sorted(evidence.sightings, key=lambda sighting: sighting.at):
        latest[sighting.execution, sighting.attempt] = sighting
    for key, sighting in latest.items():
        after_seconds = sighting.at - over_at.get(key, sighting.at)
        if after_seconds > PROCESS_GRACE_SECONDS:
            detail = (
                f"process {sighting.pid} of attempt {sighting.attempt} "
                f"alive {after_seconds:.1f} s after its end"
            )
            yield Violation("processes_end", detail, sighting.execution)


def queues_are_empty(evidence: Evidence) -> Iterator[Violation]:
    """Ticks may wait for the next executor; nothing else is left over."""
    for name, messages in evidence.queues.items():
        if messages and not name.endswith("maintenance.queue"):
            yield Violation("queues_are_empty", f"{messages} messages in {name}")


def history_is_a_path(evidence: Evidence) -> Iterator[Violation]:
    """From `requested` to where the row is, each step one that is possible."""
    for row in evidence.rows:
        status = "requested"
        for event in evidence.history_of.get(row.execution, ()):
            sources, target = POSSIBLE.get(event.event, (frozenset(), ""))
            if event.from_status != status:
                detail = f"{event.event} from {event.from_status}, and it was {status}"
                yield Violation("history_is_a_path", detail, row.execution)
            elif event.from_status not in sources or event.to_status != target:
                detail = f"{event.event} leads from {event.from_status} to {event.to_status}"
                yield Violation("history_is_a_path", detail, row.execution)
            status = event.to_status
        if status != row.status:
            detail = f"its history leads to {status}, and it is {row.status}"
            yield Violation("history_is_a_path", detail, row.execution)


def attempts_grow_by_one(evidence: Evidence) -> Iterator[Violation]:
    """Each dispatch is the next attempt, and nothing else changes the number."""
    for row in evidence.rows:
        attempt = 0
        for event in evidence.history_of.get(row.execution, ()):
            wanted = attempt + (event.event == "schedule")
            if event.event in POSSIBLE and event.attempt != wanted:
                detail = f"{event.event} at attempt {event.attempt} after attempt {attempt}"
                yield Violation("attempts_grow_by_one", detail, row.execution)
            attempt = event.attempt
        if attempt != row.attempt:
            detail = f"its history ends at attempt {attempt}, and it is at {row.attempt}"
            yield Violation("attempts_grow_by_one", detail, row.execution)


RULES: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    accepted_is_over,
    ends_once,
    ends_in_time,
    ends_with_a_reason,
    attempt_starts_once,
    not_idempotent_starts_once,
    nothing_follows_the_end,
    completed_did_run,
    processes_end,
    queues_are_empty,
    history_is_a_path,
    attempts_grow_by_one,
)


# --- what happened to one execution ------------------------------------------------------------


def timeline(evidence: Evidence, execution: str) -> str:
    """All that is known of an execution, in the order in which it happened, faults included."""
    told: list[tuple[float, str]] = []
    for accepted in evidence.accepted:
        if accepted.execution == execution:
            told.append((accepted.at, f"client    accepted, {accepted.action}"))
            told.append((accepted.deadline_at, "client    deadline"))
    for event in evidence.history_of.get(execution, ()):
        text = f"{event.from_status} -> {event.to_status} #{event.attempt}"
        told.append((event.at, f"history   {event.event}: {text} by {event.actor} {event.reason}"))
    told += [
        (line.at, f"action    {line.event} #{line.attempt} in {line.pid}")
        for line in evidence.lines
        if line.execution == execution
    ]
    told += [
        (sighting.at, f"process   {sighting.pid} alive, #{sighting.attempt}")
        for sighting in evidence.sightings
        if sighting.execution == execution
    ]
    row = evidence.row_of.get(execution)
    if row is not None and row.ended_at is not None:
        told.append((row.ended_at, f"row       {row.status} {row.reason} #{row.attempt}"))
    if told:
        first, last = min(told)[0] - 5, max(told)[0] + 5
        for fault in evidence.faults:
            if fault.at <= last and fault.until >= first:
                lasted = f"for {fault.until - fault.at:.1f} s"
                told.append((fault.at, f"FAULT     {fault.kind} {fault.detail} {lasted}"))
    return "\n".join(
        f"  {datetime.fromtimestamp(at, UTC):%H:%M:%S.%f} {text}" for at, text in sorted(told)
    )


def _grouped(things: Sequence[OfExecution]) -> dict[str, list[OfExecution]]:
    groups: dict[str, list[OfExecution]] = defaultdict(list)
    for thing in things:
        groups[thing.execution].append(thing)
    return groups


def _overlap(outages: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(end, until) - max(begin, at)) for at, until in outages)
