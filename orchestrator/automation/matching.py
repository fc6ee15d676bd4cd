"""From events to enforcements: which rules match, asked once for each event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import transaction

from orchestrator.automation import batches, enforcing, failing, messages, metrics, rulebook
from orchestrator.automation.criteria import Outcome
from orchestrator.automation.facts import facts_of
from orchestrator.automation.models import Enforcement, Event
from orchestrator.automation.rulebook import Book, Known
from orchestrator.automation.states import EnforcementState, Refused
from orchestrator.core import news, relay

ENFORCED_AT_ONCE = 8
"""So few answers are carried out by who found them: to tell all executors would take longer."""


def match(event_ids: Collection[UUID], *, now: datetime, actor: str) -> int:
    """Ask the rules about each of these events that none was asked about; returns how many.

    Safe to run twice, and at once with others: an event that another session holds is left to it.
    Raises the database's error if that is away.
    """
    return batches.settle_all(
        event_ids,
        partial(_match_together, now=now, actor=actor),
        give_up=partial(_give_up, now=now),
    )


def _match_together(ids: Sequence[UUID], *, now: datetime, actor: str) -> int:
    """Evaluate these events in one transaction, then have the answers carried out:

    1. Lock those that are not evaluated.
    2. Read the rules, if they changed: after the events, so that a rule which was disabled before
       an event was recorded is not asked.
    3. Write an enforcement for each rule that matches; one that breaks is rejected at once.
    4. Note that the events are evaluated.
    """
    with transaction.atomic():
        unevaluated = Event.objects.unevaluated().filter(pk__in=ids)
        events = list(unevaluated.locked().select_related("trigger"))
        if not events:
            return 0
        book = rulebook.current()
        answers = {event.pk: list(_answers(event, book, now)) for event in events}
        enforcements = [each for group in answers.values() for each in group]
        Enforcement.objects.bulk_create(enforcements, ignore_conflicts=True)
        _note_evaluated(answers, now)
        rejected = [each for each in enforcements if each.reason]
        failing.investigate({each.rule_id for each in rejected}, now=now, actor=actor)
        if rejected:
            metrics.REJECTED.add(Counter(each.reason for each in rejected))
        wanted = [each.pk for each in enforcements if each.state == EnforcementState.CREATED]
        for state in {each.state for each in enforcements}:
            ids = [each.pk for each in enforcements if each.state == state]
            news.tell(Enforcement, ids, state=state, now=now)
        transaction.on_commit(partial(_carry_out, wanted, now=now, actor=actor))
    return len(events)


def _carry_out(enforcement_ids: Sequence[UUID], *, now: datetime, actor: str) -> None:
    """Request the executions of these, which are committed, or tell all executors to."""
    if len(enforcement_ids) > ENFORCED_AT_ONCE:
        relay.send_soon(messages.created(enforcement_ids))
    else:
        enforcing.enforce(enforcement_ids, now=now, actor=actor)


def _give_up(id: UUID, error: Exception, *, now: datetime) -> int:
    """Note a fault of ours on the event: no rule is asked about it."""
    event = Event.objects.unevaluated().filter(pk=id)
    return event.update(evaluated_at=now, matched=0, problem=repr(error)[:200])


def _note_evaluated(answers: dict[UUID, list[Enforcement]], now: datetime) -> None:
    by_number: dict[int, list[UUID]] = defaultdict(list)
    for event_id, group in answers.items():
        by_number[len(group)].append(event_id)
    for number, ids in by_number.items():
        Event.objects.filter(pk__in=ids).update(evaluated_at=now, matched=number)


def _answers(event: Event, book: Book, now: datetime) -> Iterator[Enforcement]:
    """The enforcements of an event. A rule that breaks has one, too, which says why."""
    for known, outcome in _outcomes(event, book):
        row = Enforcement(
            rule_id=known.rule_id, revision_id=known.revision_id, event=event, created_at=now
        )
        if outcome.broken:
            row.state, row.ended_at = EnforcementState.REJECTED, now
            row.reason = outcome.reason
            row.problem = {"messages": [outcome.message[:500]]}
        yield row


def _outcomes(event: Event, book: Book) -> Iterator[tuple[Known, Outcome]]:
    only = event.only_rule_id
    rules = book.by_trigger.get(event.trigger_id) if only is None else book.by_rule.get(only)
    if rules is not None:
        yield from rules.matching(facts_of(event))
    for known in book.faulty.get(event.trigger_id, ()):
        if only in (None, known.rule_id):
            yield known, Outcome(False, Refused.CRITERIA, known.fault)
