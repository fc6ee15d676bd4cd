"""The parameters of a hook: what cannot be safe is not installed."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import rules, triggers
from orchestrator.automation.hooks import parameters
from orchestrator.automation.models import Trigger, Webhook
from orchestrator.automation.problems import InvalidDocument
from tests.automation import play
from tests.factories import NOW

pytestmark = pytest.mark.django_db

SECRET = [{"$key": "shop/hook"}]
GITHUB: dict[str, Any] = {"path": "github", "profile": "github", "secrets": SECRET}
TEMPLATE: dict[str, Any] = {
    "path": "shop", "profile": "hmac", "secrets": SECRET,
    "hmac": {"header": "X-Signature", "id_header": "X-Id"},
}  # fmt: skip


def template(**values: Any) -> dict[str, Any]:
    return {**TEMPLATE, "hmac": {"header": "X-Signature", **values}}


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"profile": "github", "secrets": SECRET}, "parameters"),
        ({**GITHUB, "profile": "gitea"}, "parameters.profile"),
        ({**GITHUB, "path": "/github"}, "parameters.path"),
        ({**GITHUB, "path": "a//b"}, "parameters.path"),
        ({**GITHUB, "path": "../b"}, "parameters.path"),
        ({**GITHUB, "path": "a/"}, "parameters.path"),
        ({**GITHUB, "path": "A"}, "parameters.path"),
        ({**GITHUB, "path": "ä"}, "parameters.path"),
        ({**GITHUB, "path": "a\n"}, "parameters.path"),
        ({**GITHUB, "path": "a" * 101}, "parameters.path"),
        ({"path": "github", "profile": "github"}, "parameters.secrets"),
        ({**GITHUB, "secrets": SECRET * 3}, "parameters.secrets"),
        ({**GITHUB, "secrets": []}, "parameters.secrets"),
        ({**GITHUB, "secrets": ["in plain"]}, "parameters.secrets"),
        ({**GITHUB, "secrets": [{"$key": "no key"}]}, "parameters.secrets[0]['$key']"),
        ({**GITHUB, "secrets": [{"$key": "user/mine"}]}, "parameters.secrets[0]['$key']"),
        ({**GITHUB, "hmac": {"header": "x"}}, "parameters.hmac"),
        ({**GITHUB, "headers": ["X-Api-Key"]}, "parameters.headers[0]"),
        ({**GITHUB, "headers": ["Authorization"]}, "parameters.headers[0]"),
        ({**GITHUB, "headers": ["X-Hub-Signature"]}, "parameters.headers[0]"),
        ({**GITHUB, "headers": ["Cookie"]}, "parameters.headers[0]"),
        ({**GITHUB, "schema": {"type": "objet"}}, "parameters.schema.type"),
        ({"path": "a", "profile": "token", "secrets": SECRET}, "parameters.secrets"),
        ({"path": "a", "profile": "hmac", "secrets": SECRET}, "parameters.hmac"),
        (template(), "parameters.hmac"),
        (
            template(id_header="X-Id", signed="{timestamp}.{body}"),
            "parameters.hmac.timestamp_header",
        ),
        (template(timestamp_header="X-Time"), "parameters.hmac.signed"),
        (template(id_header="X-Id", signed="{id}{body}"), "parameters.hmac.signed"),
        (template(id_header="X-Id", algorithm="md5"), "parameters.hmac.algorithm"),
        (template(id_header="Authorization"), "parameters.hmac.id_header"),
        (template(id_header="X-SIGNATURE"), "parameters.hmac.id_header"),
        (
            template(timestamp_header="x-signature", signed="{timestamp}.{body}"),
            "parameters.hmac.timestamp_header",
        ),
        (
            {**TEMPLATE, "hmac": {"header": "X-Mac", "id_header": "X-Id"}, "headers": ["x-mac"]},
            "parameters.headers[0]",
        ),
    ],
)
def test_hook_that_cannot_be_safe_is_refused(given: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        play.make_trigger("core.webhook", **given)
    assert str(refused.value).startswith(place)
    assert not Trigger.objects.filter(type__ref="core.webhook").exists()
    assert not Webhook.objects.exists()


@pytest.mark.parametrize(
    "given",
    [
        GITHUB,
        TEMPLATE,
        {**GITHUB, "path": "a/b-c.d_e/1"},
        {**GITHUB, "secrets": [*SECRET, {"$key": "installation/hook"}]},
        {**GITHUB, "headers": ["X-Request-Id"], "schema": {"type": "array"}, "keep_invalid": True},
        {"path": "a", "profile": "token"},
        template(timestamp_header="X-Time", signed="{timestamp}:{body}", encoding="base64"),
        template(timestamp_header="X-Signature-Time", signed="{timestamp}:{body}"),
    ],
)
def test_hook_answers_at_its_path(given: dict[str, Any]) -> None:
    trigger = play.make_trigger("core.webhook", **given)
    hook = Webhook.objects.at(given["path"])
    assert hook is not None
    assert hook.trigger == trigger
    assert triggers.ensure("core.webhook", given, now=NOW) == trigger


def test_headers_of_events_are_those_of_the_profile_and_those_that_were_named() -> None:
    kept = parameters.kept_headers({**GITHUB, "headers": ["X-Request-Id"]})
    assert {"content-type", "user-agent", "x-github-event", "x-request-id"} <= kept
    assert not [name for name in kept if parameters.NEVER_KEPT.search(name)]


# --- whose the path is ---------------------------------------------------------------------------


def test_path_of_a_hook_that_no_rule_needs_is_taken_over() -> None:
    play.make_trigger("core.webhook", **GITHUB)
    other = play.make_trigger("core.webhook", **{**GITHUB, "profile": "gitlab"})
    hook = Webhook.objects.get()
    assert hook.trigger == other
    again = play.make_trigger("core.webhook", **GITHUB)
    assert Webhook.objects.get().trigger == again


def test_path_of_a_hook_that_a_rule_needs_is_refused() -> None:
    first = play.make_trigger("core.webhook", **GITHUB)
    play.make_rule("shop.deploy", trigger=first)
    with pytest.raises(InvalidDocument, match=r"'github' is that of the rule shop\.deploy"):
        play.make_trigger("core.webhook", **{**GITHUB, "profile": "gitlab"})
    assert Webhook.objects.get().trigger == first


def test_hook_is_closed_with_its_last_rule_and_opened_with_the_next() -> None:
    trigger = play.make_trigger("core.webhook", **GITHUB)
    play.make_rule("shop.deploy", trigger=trigger)
    rules.disable("shop.deploy", now=NOW)
    assert Webhook.objects.at("github")
    rules.retire("shop.deploy", now=NOW)
    assert not Webhook.objects.at("github")
    play.make_rule("shop.other", trigger=trigger)
    assert Webhook.objects.at("github")


def test_rule_changes_the_parameters_of_its_own_hook() -> None:
    first = play.make_trigger("core.webhook", **GITHUB)
    rule = play.make_rule("shop.deploy", trigger=first)
    second = Trigger(type=first.type, parameters={**GITHUB, "headers": ["X-Request-Id"]})
    changed = play.make_rule("shop.deploy", trigger=second)
    assert changed.pk == rule.pk
    assert Webhook.objects.get().trigger_id == changed.trigger_id != first.pk
