"""The reason why each rule answered an event as it did, computed again from what the rules said
then.

That is exact, because criteria read nothing but the event, and revisions are final. Whether a rule
was enabled at the time follows: one that matches and has no answer was not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Case, OuterRef, Q, QuerySet, Subquery, When

from orchestrator.automation import asking
from orchestrator.automation.asking import Answer
from orchestrator.automation.models import Enforcement, Event, Rule, RuleRevision
from orchestrator.core.authority import Principal

RULE_LIMIT = 50
"""Rules of one event that are asked again; those that have answered come first."""
LONGEST_SECONDS = 2.0
"""After this, no further rule is asked."""


@dataclass(frozen=True)
class Recalled:
    """A rule, as it was when an event was evaluated."""

    rule: Rule
    revision: RuleRevision
    enforcement: Enforcement | None
    """Its answer at the time."""
    answer: Answer | None
    """Its answer now; None if the rules before it took too long to ask."""

    @property
    def note(self) -> str:
        """The reason why there is no answer now, or why it differs from that of then."""
        if self.answer is None:
            return "The rules before it took too long to ask: test this one alone."
        outcome = self.answer.explanation.outcome
        if self.enforcement is not None or not outcome.matched:
            return outcome.message
        if self.revision.options.get("backstop"):
            return "It is a backstop: it answers only if no other rule of the trigger matches."
        if not self.rule.is_enabled:
            return "It is not enabled, so it was not asked."
        return "It was not enabled, or had another trigger, when the event was evaluated."


def of_event(event: Event, *, seen_by: Principal) -> Iterator[Recalled]:
    """Ask the rules of an event again, as whoever looks may see it; those that had an answer come
    first. `event`: loaded with its trigger's type."""
    answered = {row.rule_id: row for row in _answers(event)}
    visible = Rule.objects.visible_to(seen_by).filter(pk__in=_rules(event).values("pk"))
    known = visible.select_related("trigger__type", "pack").annotate(then=_revision_of(event))
    answered_first = Case(When(pk__in=answered, then=0), default=1)
    rules = list(known.order_by(answered_first, "ref")[:RULE_LIMIT])
    says: dict[int, int] = {
        rule.pk: answered[rule.pk].revision_id if rule.pk in answered else rule.then  # type: ignore[attr-defined]
        for rule in rules
    }
    revisions = RuleRevision.objects.in_bulk(says.values())
    until = time.monotonic() + LONGEST_SECONDS
    for rule in rules:
        rule.revision = revisions[says[rule.pk]]
        is_late = time.monotonic() > until
        enforcement = answered.get(rule.pk)
        if enforcement is not None:
            enforcement.rule = rule
        yield _recalled(rule, event, enforcement, seen_by, is_late=is_late)


def _answers(event: Event) -> QuerySet[Enforcement]:
    """The answers of then, with their executions, as far as these are kept."""
    rows = Enforcement.objects.filter(event=event).select_related("execution")
    return rows.defer("execution__parameters", "execution__result")


def _recalled(
    rule: Rule, event: Event, enforcement: Enforcement | None, seen_by: Principal, *, is_late: bool
) -> Recalled:
    if is_late:
        return Recalled(rule, rule.current, enforcement, None)
    answer = asking.about_event(rule, event, seen_by=seen_by)
    return Recalled(rule, rule.current, enforcement, answer)


def _rules(event: Event) -> QuerySet[Rule]:
    """The rules that may have been asked: those of its trigger that said something by then, and
    those that have answered it."""
    answered = Q(pk__in=Enforcement.objects.filter(event=event).values("rule"))
    if event.only_rule_id is not None:
        return Rule.objects.filter(answered | Q(pk=event.only_rule_id))
    there = Q(trigger=event.trigger_id)
    if event.evaluated_at is None:
        there &= Q(retired_at__isnull=True)
    else:
        first = RuleRevision.objects.filter(number=1, made_at__lte=event.evaluated_at)
        there &= Q(retired_at__isnull=True) | Q(retired_at__gt=event.evaluated_at)
        there &= Q(pk__in=first.values("rule"))
    return Rule.objects.filter(answered | there)


def _revision_of(event: Event) -> Subquery:
    """The id of what a rule said when the event was evaluated."""
    said = RuleRevision.objects.filter(rule=OuterRef("pk")).order_by("-number")
    if event.evaluated_at is not None:
        said = said.filter(made_at__lte=event.evaluated_at)
    return Subquery(said.values("pk")[:1])
