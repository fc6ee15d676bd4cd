"""Whether each bad end had to be: what accounts for it, and how many of each there may be."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.chaos import effects
from tests.chaos.effects import Effect
from tests.chaos.facts import BAD, Event, Evidence, Row, Violation
from tests.chaos.spans import seconds_in

FAIL_BY_THEMSELVES = frozenset({"chaos.fails", "chaos.fails_again", "chaos.flaky"})
"""Actions that are there to fail."""

LEAD_SECONDS, LAG_SECONDS = 1.0, 1.0
"""A fault is written down after it has begun to work, and an end some time after its cause."""

RECONNECT_SECONDS = 0.5
"""From the end of a fault to the next try of a worker that was cut off."""

STARTUP_SECONDS = 2.0
"""From a claim to the first line of an action on a machine that is busy, at most."""

SHORT_DEADLINE_SECONDS = 5.0
"""Who asks for less than this cannot count on a start."""

UNSTARTED_SECONDS = 4.0
"""What is claimed starts, or goes back, much sooner."""

HEARTBEATS_UNTIL_MISSED = 3
"""A claim whose answer was lost goes back at the second heartbeat after it, and one may fail."""
LOST_ANSWER = "executions.attempts:claim:claim"
"""The failpoint whose lie it is: the claim is committed, and its worker hears that it failed."""

WITHOUT_QUEUES = effects.ABSENT | {Effect.NO_QUEUE}

NEVER_STARTED = frozenset(
    {
        "queue_ttl_expired", "scheduled_timeout", "unroutable", "dispatch_failed",
        "message_rejected", "environment_failed",
    }
)  # fmt: skip
OUTCOME_UNKNOWN = frozenset(
    {"run_deadline_passed", "worker_lost", "worker_stopped", "process_lost"}
)


@dataclass(frozen=True)
class Ending:
    """An attempt, or an execution without one, that ended badly: for good, or to be tried again."""

    row: Row
    event: Event
    since: float
    """Its dispatch, or, without one, its acceptance or its last step before."""
    claim: Event | None

    @property
    def worker(self) -> str:
        """Whose claim it was, or for whom it was meant; empty if that is not known."""
        return self.claim.actor if self.claim is not None else self.row.pinned or ""


def endings(evidence: Evidence) -> Iterator[Ending]:
    """Every bad end of every attempt."""
    for row in evidence.rows:
        since = evidence.accepted_at.get(row.execution, row.created_at)
        claim: Event | None = None
        for event in evidence.history_of.get(row.execution, ()):
            if event.to_status in BAD or event.event == "retry":
                yield Ending(row, event, since, claim)
            if event.event in ("schedule", "retry", "give_back", "defer"):
                since, claim = event.at, None
            elif event.event == "claim":
                claim = event


# --- what accounts for an end -------------------------------------------------------------------


def _failed_by_itself(evidence: Evidence, ending: Ending) -> bool:
    """The action is there to fail, and it did start."""
    starts = {line.attempt for line in evidence.starts_of.get(ending.row.execution, ())}
    return ending.row.action in FAIL_BY_THEMSELVES and ending.event.attempt in starts


def _ran_too_long(evidence: Evidence, ending: Ending) -> bool:
    """It was asked to run longer than it may, which its deadline can cut short, or it stood still.

    An action that wrote its end within its limit did not run too long.
    """
    row, claim = ending.row, ending.claim
    if claim is None:
        return False
    if _hit(evidence, ending, {Effect.STOPS, Effect.DIES}) or _is_clock(evidence, ending):
        return True
    limit_seconds = min(row.timeout_seconds, row.deadline_at - claim.at)
    own = [
        line for line in evidence.ends_of.get(row.execution, ()) if line.attempt == claim.attempt
    ]
    if own:
        return own[0].at - claim.at >= limit_seconds - LAG_SECONDS
    return row.seconds + STARTUP_SECONDS >= limit_seconds


def _end_was_not_reported(evidence: Evidence, ending: Ending) -> bool:
    """Its worker died or stood still, or could not write down the end for as long as its grace."""
    return (
        _hit(evidence, ending, {Effect.DIES, Effect.STOPS, Effect.CHILD_DIES})
        or _hit(
            evidence, ending, {Effect.NO_DATABASE}, evidence.terms.run_grace_seconds - LAG_SECONDS
        )
        or _is_clock(evidence, ending)
    )


def _worker_was_lost(evidence: Evidence, ending: Ending) -> bool:
    """It was killed, or silent for about the staleness window: frozen, or without a database.

    It gives up an interval before others do. Silence counts from the last heartbeat, which may be
    an interval old, and ends when the next one is through, a try and a connection after the fault.
    """
    return _hit(evidence, ending, {Effect.DIES}) or _hit(
        evidence, ending, {Effect.STOPS, Effect.NO_DATABASE}, _silent_seconds(evidence)
    )


def _silent_seconds(evidence: Evidence) -> float:
    terms = evidence.terms
    return terms.staleness_seconds - 2 * terms.heartbeat_seconds - RECONNECT_SECONDS


def _process_was_lost(evidence: Evidence, ending: Ending) -> bool:
    """It was killed. A worker that stops gives back what may be repeated."""
    if _hit(evidence, ending, {Effect.DIES, Effect.CHILD_DIES}) or _worker_was_lost(
        evidence, ending
    ):
        return True
    return not ending.row.idempotent and _hit(evidence, ending, {Effect.LEAVES})


def _worker_was_stopped(evidence: Evidence, ending: Ending) -> bool:
    """Its worker was told to stop, and what it ran may not be repeated."""
    return not ending.row.idempotent and _hit(evidence, ending, {Effect.LEAVES})


def _had_nowhere_to_go(evidence: Evidence, ending: Ending) -> bool:
    """It was pinned to a worker that was not fit; or no worker was there for half of its wait, or
    when it ended."""
    row, begin = ending.row, ending.since
    end = max(ending.event.at, begin + LAG_SECONDS)
    there = effects.some_fit(evidence, effects.ABSENT)
    fit = effects.fit(evidence, row.pinned) if row.pinned else there
    unfit_seconds = end - begin - seconds_in(fit, begin, end)
    if row.pinned:
        return unfit_seconds > 0
    return unfit_seconds >= (end - begin) / 2 or not seconds_in(there, end - LAG_SECONDS, end)


def _waited_as_it_asked(evidence: Evidence, ending: Ending) -> bool:
    """Its own TTL has passed, or it had nowhere to go."""
    ttl_seconds = ending.row.own_ttl_seconds
    waited_seconds = ending.event.at - ending.since
    if ttl_seconds is not None and waited_seconds >= ttl_seconds - LAG_SECONDS:
        return True
    return _had_nowhere_to_go(evidence, ending)


def _deadline_was_short(evidence: Evidence, ending: Ending) -> bool:
    """It asked for a short one, or for half of its time nobody could have run it."""
    row, end = ending.row, ending.event.at
    if _is_clock(evidence, ending):
        return True
    if end < row.deadline_at - LAG_SECONDS:
        return False
    # a client that finds no API sends its request again, and its deadline is counted from when one
    # takes it
    if row.deadline_at - row.created_at <= SHORT_DEADLINE_SECONDS:
        return True
    begin = evidence.accepted_at.get(row.execution, row.created_at)
    promised = effects.promised(evidence, row.queue, row.action)
    idle_seconds = seconds_in(promised, begin, row.deadline_at)
    return idle_seconds <= (row.deadline_at - begin) / 2 or (
        row.pinned is not None
        and seconds_in(effects.fit(evidence, row.pinned), begin, end) < (end - begin) / 2
    )


def _nobody_was_fit(evidence: Evidence, ending: Ending) -> bool:
    """At some moment of its wait no worker was there, or not the one that it must run on.

    The broker's absence is no excuse: work waits for it, and goes to whom it will be back for.
    """
    row, end = ending.row, max(ending.event.at, ending.since)
    begin = min(ending.event.at, ending.since) - LEAD_SECONDS
    there = effects.some_fit(evidence, WITHOUT_QUEUES)
    fit = effects.fit(evidence, row.pinned) if row.pinned else there
    return seconds_in(fit, begin, end) < end - begin - 1e-6


def _hit(
    evidence: Evidence, ending: Ending, what: set[Effect], at_least_seconds: float = 0.0
) -> bool:
    claimed_at = ending.since if ending.claim is None else ending.claim.at
    return effects.hits(
        evidence,
        ending.worker,
        what,
        claimed_at - LEAD_SECONDS,
        ending.event.at + LAG_SECONDS,
        at_least_seconds=at_least_seconds,
    )


def _is_clock(evidence: Evidence, ending: Ending) -> bool:
    """The database's clock was stepped while it was open: its deadlines came at once."""
    begin = evidence.accepted_at.get(ending.row.execution, ending.row.created_at)
    return any(begin - 1 <= at <= ending.event.at + LAG_SECONDS for at in evidence.clock_steps)


ACCOUNTS: Mapping[str, Callable[[Evidence, Ending], bool]] = {
    "action_failed": _failed_by_itself,
    "run_timeout": _ran_too_long,
    "run_deadline_passed": _end_was_not_reported,
    "worker_lost": _worker_was_lost,
    "process_lost": _process_was_lost,
    "worker_stopped": _worker_was_stopped,
    "queue_ttl_expired": _waited_as_it_asked,
    "scheduled_timeout": _waited_as_it_asked,
    "unroutable": _had_nowhere_to_go,
    "dispatch_failed": _had_nowhere_to_go,
    "message_rejected": _had_nowhere_to_go,
    "deadline_passed": _deadline_was_short,
    "no_worker_available": _nobody_was_fit,
}
"""By reason: what a fault, or the request itself, must have done. Another reason has no excuse."""


# --- the rules ----------------------------------------------------------------------------------


def bad_ends_are_accounted_for(evidence: Evidence) -> Iterator[Violation]:
    """Nothing fails, times out, is abandoned or loses an attempt while a fit worker could have had
    it, unless a fault or the request itself accounts for it."""
    for ending in endings(evidence):
        reason = ending.event.reason
        accounts = ACCOUNTS.get(reason)
        if accounts is None or not accounts(evidence, ending):
            on = f" on {ending.worker}" if ending.worker else ""
            detail = f"{ending.event.event} of attempt {ending.event.attempt}{on} for {reason}"
            yield Violation(
                "bad_ends_are_accounted_for",
                f"{detail}, and nothing caused it",
                ending.row.execution,
            )


def attempts_left_are_used(evidence: Evidence) -> Iterator[Violation]:
    """What may be repeated is: nobody gives up with attempts left.

    An attempt that never started may always be, one whose outcome is unknown if the action is
    idempotent; within its deadline, unless a cancel was on its way, and if the policy names it.
    Beside a step of the clock nobody can tell whether the deadline had passed for who ended it.
    """
    for ending in endings(evidence):
        row, event = ending.row, ending.event
        if event.event == "retry" or event.from_status not in ("scheduled", "running"):
            continue
        repeatable = event.reason in NEVER_STARTED or (
            event.reason in OUTCOME_UNKNOWN and row.idempotent
        )
        wanted = row.retry_on is None or event.reason in row.retry_on
        history = evidence.history_of[row.execution]
        attempts = 1 + row.lost_before + sum(e.event == "retry" for e in history)
        in_time = event.at < row.deadline_at - LAG_SECONDS and not any(
            abs(event.at - at) <= LAG_SECONDS for at in evidence.clock_steps
        )
        if repeatable and wanted and in_time and attempts < row.max_attempts:
            detail = f"{event.reason} ended it after {attempts} of {row.max_attempts} attempts"
            yield Violation("attempts_left_are_used", detail, row.execution)


def claimed_is_started(evidence: Evidence) -> Iterator[Violation]:
    """Nothing is claimed on a living worker and left lying: it starts, goes back at once, or its
    worker was hit by a fault.

    A worker that a broker keeps waiting for the acknowledgement of its claim may give it back when
    it has waited long enough, one that never got the answer to its claim when its heartbeats have
    missed it, and one whose row somebody holds when the row is free: that counts no attempt. With
    any other end none of it is an excuse.
    """
    for row in evidence.rows:
        started = evidence.attempts_with_a_line.get(row.execution, set())
        history = evidence.history_of.get(row.execution, [])
        for claim, after in itertools.pairwise(history):
            if claim.event != "claim" or claim.attempt in started:
                continue
            waited_seconds = after.at - claim.at
            broken = effects.ABSENT | {Effect.CHILD_DIES}
            patience_seconds = UNSTARTED_SECONDS
            if after.event == "give_back":
                broken |= {Effect.NO_BROKER}
                if _row_was_held(evidence, claim.execution, after.at):
                    continue
                if _answer_was_lost(evidence, claim.at):
                    until_missed = HEARTBEATS_UNTIL_MISSED * evidence.terms.heartbeat_seconds
                    patience_seconds = max(patience_seconds, until_missed)
            window = (claim.at - LEAD_SECONDS, after.at + LAG_SECONDS)
            if waited_seconds <= patience_seconds or effects.hits(
                evidence, claim.actor, broken, *window
            ):
                continue
            detail = (
                f"attempt {claim.attempt} claimed by {claim.actor}, never started, and "
                f"{after.event} {waited_seconds:.1f} s later"
            )
            yield Violation("claimed_is_started", detail, row.execution)


def _row_was_held(evidence: Evidence, execution: str, until: float) -> bool:
    """Whether somebody held the row of this execution, and it was free again just now."""
    return any(
        execution in fault.executions and 0 <= until - fault.until <= LAG_SECONDS
        for fault in evidence.faults
    )


def _answer_was_lost(evidence: Evidence, claimed_at: float) -> bool:
    return any(
        fault.kind == "failpoint, lie"
        and LOST_ANSWER in fault.detail
        and abs(fault.at - claimed_at) <= LAG_SECONDS
        for fault in evidence.faults
    )


def reasons_have_caps(evidence: Evidence) -> Iterator[Violation]:
    """No more attempts end for a reason than the faults that happened can explain."""
    found = Counter(ending.event.reason for ending in endings(evidence))
    caps = caps_of(evidence)
    for reason, number in sorted(found.items()):
        cap = caps.get(reason, 0)
        if number > cap:
            detail = f"{number} attempts ended for {reason}, and the faults explain {cap}"
            yield Violation("reasons_have_caps", detail)
    # those of tasks end with their tasks, and with repairs
    of_tasks = {execution for _, execution in evidence.tries}
    cancelled = sum(
        row.status == "cancelled" for row in evidence.rows if row.execution not in of_tasks
    )
    if cancelled > evidence.cancels:
        detail = f"{cancelled} are cancelled, and {evidence.cancels} cancels were asked for"
        yield Violation("reasons_have_caps", detail)


def caps_of(evidence: Evidence) -> dict[str, int]:
    """How many attempts may end for each reason.

    - `action_failed`: each attempt of an action that is there to fail.
    - What runs when a worker is hit is at most its slots, and as many again that it has claimed
      ahead; twice that, as its supervisor may start it into the same outage: `held`. A killed
      child takes one attempt with it, and what was handed to it next.
      `worker_lost`, `process_lost` and `run_deadline_passed`: `held` for each worker of each such
      fault; which of the three it is depends on who sees it first, so they share the number.
    - `queue_ttl_expired`, `scheduled_timeout` and the like: what was pinned or asked for its own
      TTL, for each attempt that its policy allows; and, where no worker was fit, what had been
      sent ahead to them: `held` for each.
    - `deadline_passed`, `run_timeout`: what has a short deadline, what `held` says for frozen
      workers, and all that was open at a step of the clock.
    - `no_worker_available`: what was accepted or came back while no worker was fit.
    """
    held = 4 * evidence.terms.slots
    lost = sum(
        held * len(fault.workers)
        for fault in effects.faults_with(
            evidence, {Effect.DIES, Effect.STOPS, Effect.NO_DATABASE, Effect.LEAVES}
        )
    ) + 2 * len(effects.faults_with(evidence, {Effect.CHILD_DIES}))
    unfit = sum(held * len(fault.workers) for fault in effects.faults_with(evidence, effects.UNFIT))
    asked = sum(
        row.max_attempts
        for row in evidence.rows
        if row.pinned is not None or row.own_ttl_seconds is not None
    )
    short = sum(row.deadline_at - row.created_at <= SHORT_DEADLINE_SECONDS for row in evidence.rows)
    stepped = sum(_was_open_at_a_step(evidence, row) for row in evidence.rows)
    failing = sum(row.max_attempts for row in evidence.rows if row.action in FAIL_BY_THEMSELVES)
    caps = {"action_failed": failing, "worker_stopped": lost}
    caps |= dict.fromkeys(("worker_lost", "process_lost"), lost)
    caps |= {"run_deadline_passed": lost + stepped}
    caps |= dict.fromkeys(NEVER_STARTED, asked + unfit)
    caps |= dict.fromkeys(("deadline_passed", "run_timeout"), short + stepped + lost + unfit)
    return caps | {"no_worker_available": _accepted_while_nobody_was_fit(evidence)}


def _was_open_at_a_step(evidence: Evidence, row: Row) -> bool:
    ended_at = float("inf") if row.ended_at is None else row.ended_at
    return any(row.created_at <= at <= ended_at + LAG_SECONDS for at in evidence.clock_steps)


def _accepted_while_nobody_was_fit(evidence: Evidence) -> int:
    """Executions whose life touches a time without a worker."""
    fit = effects.some_fit(evidence, WITHOUT_QUEUES)

    def is_touched(row: Row) -> bool:
        begin, end = row.created_at - LEAD_SECONDS, row.ended_at or row.created_at
        return seconds_in(fit, begin, end) < end - begin - 1e-6

    return sum(map(is_touched, evidence.rows))


def workers_give_up_for_a_cause(evidence: Evidence) -> Iterator[Violation]:
    """A worker ends itself only after it was silent for about the staleness window."""
    silent_seconds = _silent_seconds(evidence)
    for life in evidence.lives:
        if life.exit_status != EXIT_LOST or life.ended_at is None:
            continue
        window = (life.began_at - LEAD_SECONDS, life.ended_at + LAG_SECONDS)
        silent = effects.hits(
            evidence, life.worker, {Effect.STOPS, Effect.NO_DATABASE}, *window,
            at_least_seconds=silent_seconds,
        )  # fmt: skip
        if not silent:
            detail = f"{life.worker} ended itself after {life.ended_at - life.began_at:.0f} s"
            yield Violation("workers_give_up_for_a_cause", f"{detail}, and nothing had hit it")


EXIT_LOST = 70
"""Of a worker that was told that it is believed to be dead."""
