"""Each noun is described once, and what is secret is not shown."""

from __future__ import annotations

from uuid import uuid4

import pytest

from orchestrator.automation import rules, subjects, triggers
from orchestrator.automation.models import Event, Trigger, TriggerType
from orchestrator.automation.models.events import TOO_DEEP
from orchestrator.automation.shown import enforcements, events
from orchestrator.automation.shown import rules as shown_rules
from orchestrator.automation.shown import triggers as shown_triggers
from orchestrator.core import contents, executions
from orchestrator.core.executions import NotToBeRunAgain
from orchestrator.core.models import Execution
from orchestrator.core.redaction import REDACTED
from orchestrator.core.shown.values import Link
from tests import principals
from tests.automation import play
from tests.factories import NOW, seconds
from tests.principals import given

pytestmark = pytest.mark.django_db


def test_event_and_what_became_of_it() -> None:
    play.make_rule()
    [row] = play.answer(7)
    event = Event.objects.select_related("trigger__type").get(pk=row.event_id)
    document = events.shown(event, seen_by=principals.ROOT)
    assert (document.type, document.key, document.payload) == (play.ORDER, "order 7", {"number": 7})
    assert dict(events.situation(event, seen_by=principals.ROOT))["Rules that matched"] == 1
    answer = enforcements.shown(row, seen_by=principals.ROOT)
    assert (answer.rule, answer.revision, answer.state) == ("shop.ship", 1, "executed")
    execution = Execution.objects.get()
    said = dict(enforcements.situation(row, NOW, seen_by=principals.ROOT))
    assert said["Execution"] == Link(execution, str(row.execution_id))
    names = [name for name, _ in enforcements.of_execution(execution)]
    assert names == ["Rule", "Event"]
    row.execution_id = uuid4()
    said = dict(enforcements.situation(row, NOW, seen_by=principals.ROOT))
    assert said["Execution"] == f"{row.execution_id} (removed)"


def test_payload_is_hidden_from_whoever_may_not_see_payloads() -> None:
    [id] = play.record(7)
    event = Event.objects.select_related("trigger__type").get(pk=id)
    viewer = principals.principal(given("viewer"))
    assert events.shown(event, seen_by=viewer).payload == REDACTED


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("", ""),
        (TOO_DEEP, TOO_DEEP),
        ("/body: expected 'object', found 'a name'", "does not fit the schema"),
        ("KeyError('a name')", "a fault of Muster"),
    ],
)
def test_list_says_whose_fault_it_is_that_no_rule_was_asked(problem: str, said: str) -> None:
    assert Event(problem=problem).why_not_asked == said


def test_refusal_quotes_parameters_only_for_whoever_may_see_payloads() -> None:
    play.make_rule()
    [row] = play.answer(7)
    text = "/parameters/number: expected an integer, found 'a name'"
    row.reason, row.problem = "action_refused", {"messages": [text]}
    viewer = principals.principal(given("viewer"))
    for user, problem, why in (
        (principals.ROOT, row.problem, f"action_refused: {text}"),
        (viewer, None, "action_refused"),
    ):
        assert enforcements.shown(row, seen_by=user).problem == problem
        assert enforcements.why(row, seen_by=user) == why
        assert ("Problem" in dict(enforcements.situation(row, NOW, seen_by=user))) == bool(problem)


def test_problem_quotes_the_payload_only_for_whoever_may_see_it() -> None:
    text = "/body/ref: expected 'integer', found 'a name'"
    [id] = play.record(7, problem=text)
    event = Event.objects.select_related("trigger__type").get(pk=id)
    viewer = principals.principal(given("viewer"))
    for user, said in ((principals.ROOT, text), (viewer, "does not fit the schema")):
        assert events.shown(event, seen_by=user).problem == said
        assert dict(events.situation(event, seen_by=user))["Problem"] == said
    [subject] = subjects.events([id], now=NOW)
    assert subject.state == "does not fit the schema"
    event.problem = TOO_DEEP
    assert events.shown(event, seen_by=viewer).problem == "too_deep"


def test_what_a_payload_marks_is_secret_in_the_execution_that_has_it() -> None:
    secret = {"properties": {"number": {"type": "integer", "secret": True}}}
    play.make_rule()
    TriggerType.objects.filter(ref=play.ORDER).update(payload_schema=secret)
    ids = play.record(123456, trigger=triggers.find(play.ORDER))
    play.enforce(play.match(ids))
    execution = Execution.objects.select_related("action").get()
    known = contents.secrets_of([execution])[execution.pk]
    assert contents.parameters(execution, known) == {"text": f"order {REDACTED}"}
    Execution.objects.update(status="completed", ended_at=NOW, reason="succeeded")
    execution.refresh_from_db()
    with pytest.raises(NotToBeRunAgain, match=f"replay event {ids[0]} for the rule shop.ship"):
        executions.run_again(execution, token="x", by="ada", principal=principals.ROOT, now=NOW)


def test_rule_says_why_it_is_enabled_and_keeps_its_secrets() -> None:
    play.make_rule(parameters={"password": "hunter2"}, options={"priority": 3})
    rule = rules.find("shop.ship")
    document = shown_rules.detail(rule)
    assert document.parameters == {"password": REDACTED}
    assert (document.revision, document.is_enabled, document.owner) == (1, True, None)
    assert dict(shown_rules.situation(rule))["Enabled"] == "yes, says its definition"
    rules.disable("shop.ship", now=NOW)
    disabled = rules.find("shop.ship")
    assert dict(shown_rules.situation(disabled))["Enabled"] == "no, says an operator"
    assert not shown_rules.summary(disabled).is_enabled


def test_trigger_says_when_it_fires_next_if_it_is_a_timer() -> None:
    timer = play.make_trigger("core.interval", every_seconds=10)
    play.make_rule("shop.tick", trigger=timer, parameters={})
    rows = Trigger.objects.select_related("type", "timer")
    assert shown_triggers.shown(rows.get(pk=timer.pk)).next_fire_at == NOW + seconds(10)
    assert "Fires next" in dict(shown_triggers.situation(rows.get(pk=timer.pk), NOW))
    order = play.make_trigger()
    assert shown_triggers.shown(rows.get(pk=order.pk)).next_fire_at is None
    assert shown_triggers.type_shown(order.type).pack == "shop"
