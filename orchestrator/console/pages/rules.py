"""Rules: a list, and one of them, which can be tested against a past event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import OuterRef, Subquery
from django.http import HttpRequest

from orchestrator.automation import asking
from orchestrator.automation.models import Enforcement, Event, Rule
from orchestrator.automation.models.rules import RuleQuerySet
from orchestrator.automation.rules import UnknownRule
from orchestrator.automation.shown import answers
from orchestrator.automation.shown import rules as shown
from orchestrator.automation.states import EnforcementState
from orchestrator.console import access, criteria, draw, journal, paging, switches
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.console.pages import enforcements
from orchestrator.core import authority
from orchestrator.core.models import Execution
from orchestrator.core.words import Kind, kind_of

LAST = 10
"""Enforcements, and past events to test against, on a rule's page."""
RELATED = ("trigger__type", "revision", "owner__user", "pack")
SAID_ABOVE = ("Rule", "Matches", "Message")
ENABLED = ("yes", "no", "retired")


@dataclass(frozen=True)
class Row:
    """A rule as lists show it, with its last answer."""

    rule: Rule
    last: Enforcement | None
    execution: Execution | None

    @property
    def state(self) -> str:
        return state_of(self.rule)

    @property
    def kind(self) -> Kind:
        return kind_by(self.rule, self.last, self.execution)

    @property
    def outcome(self) -> str:
        """Of the last answer: the status of its execution, or why there is none."""
        if self.last is None:
            return ""
        return self.execution.status if self.execution else self.last.state

    @property
    def outcome_kind(self) -> Kind:
        return kind_of(self.outcome)


def state_of(rule: Rule) -> str:
    """`enabled`, `disabled` or `retired`."""
    if rule.retired_at is not None:
        return "retired"
    return "enabled" if rule.is_enabled else "disabled"


def kind_by(rule: Rule, last: Enforcement | None, execution: Execution | None) -> Kind:
    """Grey unless it is enabled; then green if its last answer worked, and red if it did not."""
    if not rule.is_enabled:
        return Kind.PLAIN
    if last is None:
        return Kind.INFO
    failed = execution is not None and kind_of(execution.status) == Kind.DANGER
    if last.state == EnforcementState.REJECTED or failed:
        return Kind.DANGER
    return Kind.SUCCESS


@access.page("rules", needs="rules.read", topics="rule,enforcement,execution,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Rules by name, each with its last answer."""
    query = paging.query_of(request)
    visible = Rule.objects.visible_to(look.user).select_related(*RELATED)
    # what a rule says may be long, and no column shows it
    rules = visible.defer("revision__criteria", "revision__parameters", "trigger__parameters")
    listed = paging.by_name(request, _matching(rules, query))
    last = _last_of(listed.rows)
    return {
        "title": "Rules",
        "here": "rules",
        "listed": listed,
        "rows": [_row(look, rule, last.get(rule.pk)) for rule in listed.rows],
        "query": query,
        "is_filtered": paging.is_filtered(query),
        "choices": ENABLED,
    }


def _matching(rows: RuleQuerySet, query: dict[str, str]) -> RuleQuerySet:
    enabled = Rule.objects.enabled().values("pk")
    match query.get("enabled"):
        case "yes":
            rows = rows.filter(pk__in=enabled)
        case "no":
            rows = rows.exclude(pk__in=enabled).filter(retired_at__isnull=True)
        case "retired":
            rows = rows.filter(retired_at__isnull=False)
        case None:
            pass
        case _:
            rows = rows.none()
    if part := query.get("name"):
        rows = rows.filter(ref__icontains=part)
    if action := query.get("action"):
        rows = rows.filter(revision__action_ref=action)
    return rows


def _last_of(rules: Sequence[Rule]) -> dict[int, Enforcement]:
    """The last answer of each rule: an index has it."""
    newest = Enforcement.objects.filter(rule=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    shown_rules = Rule.objects.filter(pk__in=[rule.pk for rule in rules]).order_by()
    ids = shown_rules.annotate(newest=Subquery(newest)).values("newest")
    rows = Enforcement.objects.filter(pk__in=ids).select_related("execution")
    return {row.rule_id: row for row in rows.defer("execution__parameters", "execution__result")}


def _row(look: Look, rule: Rule, last: Enforcement | None) -> Row:
    return Row(rule, last, enforcements.execution_of(look, last) if last else None)


def found(look: Look, ref: str, permission: str = "rules.read") -> Rule:
    """The rule of this name. Raises UnknownRule, also if the user may not know it."""
    visible = Rule.objects.visible_to(look.user, permission).select_related(*RELATED)
    rule = visible.filter(ref=ref).first()
    if rule is None:
        raise UnknownRule(f"No rule is called {ref[:140]!r}")
    return rule


@access.page("rule", needs="rules.read", topics="rule,enforcement,execution,event,clock")
def show(look: Look, request: HttpRequest, ref: str) -> Context:
    """A rule: what it says, its last answers, and its answer to a past event that the address
    names."""
    rule = found(look, ref)
    answered = enforcements.loaded(Enforcement.objects.filter(rule=rule).order_by("-pk"))
    rows = enforcements.rows_of(look, answered[:LAST])
    first = rows[0] if rows else None
    dialogs = switches.of_rule(rule, look)
    return {
        "title": rule.ref,
        "here": "rules",
        "rule": rule,
        "state": state_of(rule),
        "kind": kind_by(
            rule, first.enforcement if first else None, first.execution if first else None
        ),
        "situation": draw.facts(shown.situation(rule), seen_by=look.user),
        "rows": rows,
        "last": LAST,
        "done": journal.lines(rule),
        "events": _events(look, rule),
        "dialogs": dialogs.allowed,
        "orders": dialogs.useful,
    } | _tested(look, rule, paging.query_of(request).get("event", ""))


def _events(look: Look, rule: Rule) -> list[Event]:
    """The last events of its trigger."""
    visible = Event.objects.visible_to(look.user).filter(trigger=rule.trigger_id)
    return list(visible.defer("payload").order_by("-pk")[:LAST])


def _tested(look: Look, rule: Rule, asked: str) -> Context:
    """The rule's answer, as it is now, to the event that was asked for. Nothing is recorded."""
    if not asked:
        return {}
    authority.require(look.user, "events.read")
    event = _event(look, asked.strip())
    if event is None:
        wrong = f"Expected the id of an event that you may see, found {asked[:60]!r}"
        return {"asked": asked, "wrong": wrong}
    answer = asking.about_event(rule, event, seen_by=look.user)
    return {
        "asked": asked,
        "event": event,
        "verdict": criteria.verdict(answer),
        "answer": [
            (name, value)
            for name, value in draw.facts(answers.situation(answer), seen_by=look.user)
            if name not in SAID_ABOVE
        ],
    }


def _event(look: Look, text: str) -> Event | None:
    try:
        id = UUID(text)
    except ValueError:
        return None
    visible = Event.objects.visible_to(look.user).select_related("trigger__type")
    return visible.filter(pk=id).first()
