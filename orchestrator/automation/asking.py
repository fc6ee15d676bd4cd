"""Ask a rule about a payload or an old event, and answer leaf by leaf. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from orchestrator.automation import parameters
from orchestrator.automation.criteria import Explanation, Facts, Outcome, compile_criteria
from orchestrator.automation.criteria.explanations import LeafAnswer
from orchestrator.automation.facts import facts_of
from orchestrator.automation.models import Event, Rule
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.states import Refused
from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.redaction import REDACTED, redacted


@dataclass(frozen=True)
class Answer:
    """The answer of a rule as it is now, with what whoever asks may see."""

    rule: Rule
    explanation: Explanation
    parameters: Mapping[str, Any] | None
    """The parameters that the action would get, if the rule matches and they have a value."""
    problems: tuple[str, ...]
    """The reasons why they have none."""


def about_event(rule: Rule, event: Event, *, seen_by: Principal) -> Answer:
    """Ask about an event, loaded with its trigger's type."""
    return _answer(rule, facts_of(event), event.trigger.type.payload_schema, event.place, seen_by)


def about_payload(
    rule: Rule, payload: Mapping[str, Any], *, seen_by: Principal, now: datetime
) -> Answer:
    """Ask about an event that there might be, received now. Its payload is the caller's own, so
    only what is marked as secret is not shown."""
    event = {
        "id": None, "type": rule.trigger.type.ref, "key": None, "source": "test",
        "sent_by": seen_by.actor, "correlation_id": None, "depth": 0,
        "received_at": now.isoformat(), "occurred_at": None,
        "parameters": rule.trigger.parameters,
    }  # fmt: skip
    facts = Facts(trigger=dict(payload), event=event, received_at=now)
    return _answer(rule, facts, rule.trigger.type.payload_schema, None, seen_by)


def _answer(
    rule: Rule, facts: Facts, schema: Any, place: Place | None, seen_by: Principal
) -> Answer:
    """Decide with the whole payload; show the values, and the parameters, of the payload without
    its secrets. Every leaf is asked both times, in the same order."""
    hidden = place is not None and not authority.may(seen_by, authority.PAYLOADS, place)
    public = replace(facts, trigger={} if hidden else redacted(facts.trigger, schema=schema))
    try:
        criteria = compile_criteria(rule.current.criteria)
    except InvalidDocument as invalid:  # installed by a release that allowed it
        broken = Outcome(False, Refused.CRITERIA, str(invalid))
        return Answer(rule, Explanation(broken, ()), None, ())
    asked, masked = criteria.explain(facts), criteria.explain(public)
    leaves = tuple(map(_without_secrets, asked.leaves, masked.leaves))
    shown = Explanation(asked.outcome, leaves)
    if hidden or not asked.matched:
        return Answer(rule, shown, None, ())
    return Answer(rule, shown, *_parameters(rule, public))


def _without_secrets(asked: LeafAnswer, masked: LeafAnswer) -> LeafAnswer:
    """The answer, with the values that may be seen."""
    if asked.value == masked.value:
        return replace(asked, pattern=masked.pattern)
    value = REDACTED if masked.value is None else masked.value
    return replace(asked, value=value, pattern=masked.pattern, note="")


def _parameters(rule: Rule, facts: Facts) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    known = parameters.Known(
        trigger=facts.trigger,
        event=facts.event,
        rule={"ref": rule.ref, "revision": rule.current.number},
        pack={"name": rule.place.name},
    )
    try:
        return redacted(parameters.render(rule.current.parameters, known)), ()
    except InvalidDocument as invalid:
        return None, tuple(map(str, invalid.problems))
