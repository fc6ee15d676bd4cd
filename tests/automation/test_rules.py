"""A rule is installed whole or not at all, and what is wrong with it is named with its place."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError

from orchestrator.automation import owners, rules
from orchestrator.automation.models import Revision, Rule, RuleRevision, Trigger
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.rules import NewRule, RuleIsRetired, RuleTaken, UnknownRule
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.models import Pack
from tests import principals
from tests.automation import play
from tests.factories import NOW, make_action
from tests.principals import given

pytestmark = pytest.mark.django_db


def problems(**values: Any) -> list[str]:
    """What is said of a rule with these values."""
    make_action(parameters_schema={"properties": {"text": {"type": "string"}}})
    play.make_trigger()
    known: dict[str, Any] = {
        "ref": "shop.ship", "trigger_type": play.ORDER, "action_ref": "core.echo",
    }  # fmt: skip
    with pytest.raises(InvalidDocument) as raised:
        rules.install(NewRule(**{**known, **values}), now=NOW)
    assert not Rule.objects.exists()
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ref": "Ship"}, "ref: expected `pack.name`"),
        ({"trigger_type": "shop.ordr"}, "trigger.type: no trigger type is called 'shop.ordr'; did "
                                        "you mean 'shop.order'?"),
        ({"trigger_type": "core.cron", "trigger_parameters": {"cron": "61 * * * *"}},
         "trigger.parameters.cron: "),
        ({"criteria": {"trigger.a": {"type": "like", "pattern": 1}}}, "criteria"),
        ({"action_ref": "core.ecko"}, "action.ref: no action is called 'core.ecko'; did you mean "
                                      "'core.echo'?"),
        ({"parameters": {"text": "{{ triger.a }}"}}, "action.parameters.text: "),
        ({"parameters": {"text": 5}}, "action.parameters.text: expected"),
        ({"options": {"priorty": 1}}, "priorty: is no option of a rule; did you mean 'priority'?"),
        ({"options": {"priority": 1.5}}, "priority: expected -100 to 100, found 1.5"),
        ({"options": {"timeout_seconds": "5"}}, "timeout_seconds: expected"),
        ({"options": {"backstop": 1}}, "backstop: expected true or false, found 1"),
        ({"options": {"retry": {"attempts": 1}}}, "retry.attempts: "),
        ({"options": {"queue": "Orders"}}, "queue: expected the name of a queue, "),
        ({"options": {"queue": 5}}, "queue: expected the name of a queue, "),
        ({"options": {"worker_selector": {"zone": 1}}}, "worker_selector.zone: "),
        ({"options": {"suppress": {"seconds": 0}}}, "suppress.seconds: expected a number above 0"),
        ({"options": {"suppress": {"seconds": 5, "by": "{{ x }}"}}}, "suppress.by: "),
        ({"options": {"suppress": {"seconds": 5, "buy": ""}}}, "suppress.buy: is unknown"),
    ],
)  # fmt: skip
def test_fault_is_named_with_its_place(values: dict[str, Any], said: str) -> None:
    found = problems(**values)
    assert len(found) == 1, found
    assert found[0].startswith(said)


def test_all_faults_are_named_at_once() -> None:
    found = problems(ref="Ship", trigger_type="shop.x", action_ref="core.x", options={"x": 1})
    assert len(found) == 4


def test_rule_that_says_the_same_is_unchanged() -> None:
    play.make_rule()
    stamp = Revision.objects.stamp()
    trigger = Trigger.objects.get()
    new = NewRule(
        ref="shop.ship", trigger_type=play.ORDER, action_ref="core.echo",
        parameters={"text": "order {{ trigger.number }}"},
    )  # fmt: skip
    assert rules.install(new, now=NOW) == (Rule.objects.get(), "unchanged")
    assert (Revision.objects.stamp(), Trigger.objects.get()) == (stamp, trigger)


def test_change_is_a_revision_and_the_former_one_stays() -> None:
    play.make_rule(options={"priority": 1})
    rule = play.make_rule(options={"priority": 2})
    assert rule.current.number == 2
    assert [each.options["priority"] for each in rule.revisions.all()] == [1, 2]
    with pytest.raises(IntegrityError):
        RuleRevision.objects.update(action_ref="core.noop")


def test_equal_parameters_are_the_same_trigger() -> None:
    first = play.make_trigger("core.interval", every_seconds=5, jitter_seconds=0)
    assert play.make_trigger("core.interval", jitter_seconds=0, every_seconds=5.0) == first
    assert play.make_trigger("core.interval", every_seconds=6) != first


def test_operators_word_outlives_upgrades() -> None:
    rule = play.make_rule()
    rules.disable(rule.ref, now=NOW)
    again = play.make_rule(options={"priority": 1})
    assert not again.is_enabled
    assert rules.enable(rule.ref, now=NOW).is_enabled


def test_rule_of_a_pack_that_is_no_longer_in_it_is_retired_and_comes_back() -> None:
    pack = play.make_trigger().type.pack
    assert pack is not None
    make_action()
    news = [
        NewRule(ref=f"shop.{name}", trigger_type=play.ORDER, action_ref="core.echo")
        for name in ("a", "b")
    ]
    assert rules.install_all(news, pack=pack, now=NOW).created == ("shop.a", "shop.b")
    report = rules.install_all(news[:1], pack=pack, now=NOW)
    assert (report.unchanged, report.disabled) == (("shop.a",), ("shop.b",))
    with pytest.raises(RuleIsRetired):
        rules.enable("shop.b", now=NOW)
    assert rules.install_all(news, pack=pack, now=NOW).updated == ("shop.b",)
    assert rules.find("shop.b").is_enabled


def test_faults_of_a_pack_name_the_rule_and_nothing_is_installed() -> None:
    pack = play.make_trigger().type.pack
    assert pack is not None
    make_action()
    good = NewRule(ref="shop.a", trigger_type=play.ORDER, action_ref="core.echo")
    bad = NewRule(ref="shop.b", trigger_type="shop.none", action_ref="core.echo")
    with pytest.raises(InvalidDocument, match=r"\['shop\.b'\]\.trigger\.type: no trigger type"):
        rules.install_all([good, bad], pack=pack, now=NOW)
    assert not Rule.objects.exists()


def test_rule_of_another_pack_is_not_taken() -> None:
    play.make_rule("shop.ship")
    pack = Pack.objects.get(name="shop")
    new = NewRule(ref="shop.ship", trigger_type=play.ORDER, action_ref="core.echo")
    with pytest.raises(RuleTaken, match="no pack"):
        rules.install(new, pack=pack, now=NOW)


def test_unknown_rule_is_named_with_a_hint() -> None:
    play.make_rule()
    with pytest.raises(UnknownRule, match=r"did you mean 'shop\.ship'"):
        rules.find("shop.shop")


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        ([given("author", packs=["shop"])], "executions.run"),
        ([given("rules.install"), given("executions.run")], "events.read"),
        ([given("operator")], "rules.install"),
        ([given("author", packs=["shop", "core"])], None),
    ],
)
def test_who_installs_a_rule_must_be_permitted_what_it_does(
    grants: list[Any], missing: str | None
) -> None:
    principal = principals.principal(*grants)
    if missing is None:
        play.make_rule(principal=principal)
        return
    with pytest.raises(PermissionMissing) as raised:
        play.make_rule(principal=principal)
    assert raised.value.permission == missing


def test_who_changes_a_rule_becomes_its_owner() -> None:
    first = principals.service("first", given("admin"))
    second = principals.service("second", given("admin"))
    both = owners.principals([first.pk, second.pk])
    rule = play.make_rule(principal=both[first.pk])
    assert rule.owner == first
    assert play.make_rule(principal=both[second.pk]).owner == first, "it says the same"
    assert play.make_rule(principal=both[second.pk], options={"priority": 1}).owner == second
    assert play.make_rule(options={"priority": 2}).owner is None
