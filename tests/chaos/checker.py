"""Judges a run from its evidence alone: pure functions, and nothing of Muster's own.

The evidence comes from outside of Muster: the ids that a client was given, the lines that
actions wrote, what the process table showed, the queues, and the rows as plain SQL reads them.
Even the table of transitions is written down here a second time.

All times are seconds since 1970, as `time.time()` gives them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from tests.chaos import (
    accounting,
    effects,
    policy_rules,
    queue_rules,
    service_rules,
    task_rules,
)
from tests.chaos.effects import Effect
from tests.chaos.facts import TERMINAL, Event, Evidence, Sighting, Violation
from tests.chaos.spans import seconds_in

PROMISED_SECONDS = 20.0
"""An execution is over at most this long after its deadline."""

PROCESS_GRACE_SECONDS = 15.0
"""A process of an attempt may outlive its end this long."""

ORDER_SECONDS = 2.0
"""What happens is dated by a clock that was asked a moment before it is written. A busy machine
keeps a process waiting in between, by more than a second under a storm."""

CLOCK_STEP_SECONDS = 30.0
"""Around a step of the database's clock no two times are compared."""

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
    "defer": (frozenset({"running"}), "requested"),
    "answer": (frozenset({"scheduling"}), "completed"),
    "cancel": (frozenset({"requested", "scheduling", "scheduled"}), "cancelled"),
    "request_cancel": (frozenset({"running"}), "canceling"),
    "confirm_cancel": (frozenset({"canceling"}), "cancelled"),
    "abandon": (frozenset({"running", "canceling"}), "abandoned"),
}
"""event -> (from any of these, to this one)."""


def check(evidence: Evidence, rules: Sequence[Rule] | None = None) -> list[Violation]:
    """Every violation of these rules, of all if none are named."""
    return [violation for rule in rules or RULES for violation in rule(evidence)]


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
    """Over at most 20 s after the deadline that the client was told, and after it was written down:
    who requests a step, or answers an event, may be kept from writing it for longer than that.

    The time in which the database could not be written does not count, nor that in which somebody
    else held the execution's own row. What was seen to be open after the time of its end was open.
    """
    deadlines = {row.execution: row.deadline_at for row in evidence.rows}
    deadlines |= {accepted.execution: accepted.deadline_at for accepted in evidence.accepted}
    for row in evidence.rows:
        if row.ended_at is None:
            continue
        deadline_at = max(deadlines[row.execution], row.created_at)
        over_at = max(row.ended_at, evidence.last_open.get(row.execution, 0.0))
        late_seconds = over_at - deadline_at
        held = [(f.at, f.until) for f in evidence.faults if row.execution in f.executions]
        away = [*evidence.database_outages, *held]
        late_seconds -= seconds_in(away, deadline_at, over_at)
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


def deferral_is_the_actions_word(evidence: Evidence) -> Iterator[Violation]:
    """What went back as not begun did say so in that attempt, and began nothing; and no execution
    ends for that."""
    said = {(line.execution, line.attempt) for line in evidence.lines if line.event == "defer"}
    for event in evidence.events:
        is_deferral = event.event == "defer"
        if is_deferral != (event.reason == "task_rejected"):
            detail = f"{event.event} of attempt {event.attempt} for {event.reason}"
            yield Violation("deferral_is_the_actions_word", detail, event.execution)
        if is_deferral and (event.execution, event.attempt) not in said:
            detail = f"attempt {event.attempt} was deferred, and its action did not ask for that"
            yield Violation("deferral_is_the_actions_word", detail, event.execution)
    for execution, starts in evidence.starts_of.items():
        for line in starts:
            if (execution, line.attempt) in said:
                detail = f"attempt {line.attempt} said that it cannot begin, and began"
                yield Violation("deferral_is_the_actions_word", detail, execution)


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


def events_are_answered_once(evidence: Evidence) -> Iterator[Violation]:
    """Rules were asked about every event, and each of their answers is over, with one execution or
    a reason for none."""
    for what, number in evidence.unanswered.items():
        if number:
            yield Violation("events_are_answered_once", f"{number} {what}")


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


def results_are_the_actions(evidence: Evidence) -> Iterator[Violation]:
    """What is completed has the result that the action of that attempt wrote down itself.

    A command's result is one of several things that are kept of it.
    """
    wrote = {(line.execution, line.attempt): line.result for lines in evidence.ends_of.values()
             for line in lines}  # fmt: skip
    for row in evidence.rows:
        wanted = wrote.get((row.execution, row.attempt))
        if row.status != "completed" or wanted is None or row.result == wanted:
            continue
        if not isinstance(row.result, dict) or row.result.get("result") != wanted:
            detail = f"its result is {row.result!r:.100}, and its action returned {wanted!r:.100}"
            yield Violation("results_are_the_actions", detail, row.execution)


def time_goes_forward(evidence: Evidence) -> Iterator[Violation]:
    """No end before its dispatch: no event is dated before an earlier one of the same history, nor
    before the execution was asked for, nor an end before the action's own.

    Who asks the clock and must then wait, for a lock, for a database, or because it is frozen
    itself, writes an old time: as old as that fault was long. Around a step of the database's
    clock nothing is compared.
    """
    for execution, events in evidence.history_of.items():
        dated = [("acceptance", evidence.accepted_at.get(execution, events[0].date))]
        dated += [(f"{event.event} of attempt {event.attempt}", event.date) for event in events]
        for (before, earlier_at), (after, at) in itertools.pairwise(dated):
            if earlier_at - at > _allowance(evidence, at, earlier_at):
                detail = f"{after} is dated {earlier_at - at:.1f} s before {before}"
                yield Violation("time_goes_forward", detail, execution)
        yield from _ends_before_their_actions(evidence, execution, events)


def _ends_before_their_actions(
    evidence: Evidence, execution: str, events: list[Event]
) -> Iterator[Violation]:
    completed = {event.attempt: event.date for event in events if event.event == "complete"}
    for line in evidence.ends_of.get(execution, ()):
        at = completed.get(line.attempt, line.at)
        if line.at - at > _allowance(evidence, at, line.at):
            detail = f"complete is dated {line.at - at:.1f} s before the action's own end"
            yield Violation("time_goes_forward", detail, execution)


def _allowance(evidence: Evidence, at: float, earlier_at: float) -> float:
    if any(abs(step - at) < CLOCK_STEP_SECONDS for step in evidence.clock_steps):
        return float("inf")
    if any(abs(step - earlier_at) < CLOCK_STEP_SECONDS for step in evidence.clock_steps):
        return float("inf")
    waits = [
        fault.until - fault.at + effects.RECOVERY_SECONDS
        for fault in effects.faults_with(evidence, {Effect.STALLS})
        if fault.at <= earlier_at + ORDER_SECONDS and fault.until >= at - ORDER_SECONDS
    ]
    return ORDER_SECONDS + max(waits, default=0.0)


def answers_are_honest(evidence: Evidence) -> Iterator[Violation]:
    """The API says 503 when it cannot answer, and no other 5xx."""
    for answer in evidence.wrong_answers:
        yield Violation("answers_are_honest", answer)


def neighbours_are_undisturbed(evidence: Evidence) -> Iterator[Violation]:
    """Another installation on the same virtual host does its own work, all of it."""
    came = any(fault.kind == "second installation" for fault in evidence.faults)
    if came and not evidence.neighbours:
        yield Violation("neighbours_are_undisturbed", "none of them says what became of its work")
    for execution, status in evidence.neighbours.items():
        if status != "completed":
            detail = f"{execution} of the second installation is {status}"
            yield Violation("neighbours_are_undisturbed", detail)


Rule = Callable[[Evidence], Iterator[Violation]]

OF_HISTORY: tuple[Rule, ...] = (
    accepted_is_over,
    ends_once,
    ends_in_time,
    ends_with_a_reason,
    attempt_starts_once,
    not_idempotent_starts_once,
    deferral_is_the_actions_word,
    nothing_follows_the_end,
    completed_did_run,
    processes_end,
    queues_are_empty,
    history_is_a_path,
    attempts_grow_by_one,
)
"""What needs no knowledge of the faults, nor of what was asked for."""

RULES: tuple[Rule, ...] = (
    *OF_HISTORY,
    accounting.bad_ends_are_accounted_for,
    accounting.attempts_left_are_used,
    accounting.claimed_is_started,
    accounting.reasons_have_caps,
    accounting.workers_give_up_for_a_cause,
    results_are_the_actions,
    time_goes_forward,
    answers_are_honest,
    events_are_answered_once,
    neighbours_are_undisturbed,
    *queue_rules.RULES,
    *policy_rules.RULES,
    *task_rules.RULES,
    *service_rules.RULES,
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
