"""A new version that would break rules of other packs is refused, and says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.automation import rules
from orchestrator.automation.models import Rule
from orchestrator.automation.trigger_types import install_built_in
from orchestrator.core import packs
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.executions import removal
from orchestrator.core.models import Pack
from orchestrator.core.packs import WouldBreak
from tests.core.packs.folder import Folder
from tests.core.packs.releasing import install
from tests.factories import NOW
from tests.principals import given, principal

pytestmark = pytest.mark.usefixtures("database")

RULE = """\
name: watch
trigger: {type: net.changed}
criteria:
  trigger.host: {type: eq, pattern: web1}
action:
  ref: net.ping
  parameters: {host: "{{ trigger.address.text }}"}
"""
PAYLOAD = {"host": {"type": "string"}, "address": {"properties": {"text": {"type": "string"}}}}


@pytest.fixture
def net(tmp_path: Path) -> Folder:
    """A pack whose action and trigger type a rule of another pack uses."""
    install_built_in(now=NOW)
    net, other = Folder(tmp_path / "net"), Folder(tmp_path / "other")
    other.write("pack.yaml", 'name: other\nversion: "1.0"\n')
    other.write("rules/watch.yaml", RULE)
    net.action()
    payload(net, PAYLOAD)
    install(net.path)
    install(other.path)
    return net


def payload(net: Folder, properties: dict[str, Any]) -> None:
    net.write("triggers/changed.yaml", str({"name": "changed",
              "payload_schema": {"properties": properties}}))  # fmt: skip


def refused(net: Folder) -> str:
    with pytest.raises(WouldBreak) as error:
        install(net.path)
    (broken,) = error.value.broken
    assert (broken.kind, broken.ref) == ("rule", "other.watch")
    return broken.why


class TestPayload:
    def test_a_path_that_is_gone_is_refused(self, net):
        payload(net, {"host": {"type": "string"}})
        assert refused(net) == "net.changed: its payload has no 'address' any more"

    def test_a_path_of_another_type_is_refused(self, net):
        payload(net, PAYLOAD | {"host": {"type": "object"}})
        assert refused(net) == "net.changed: its 'host' is object, not string"

    def test_a_path_deep_in_it_counts(self, net):
        payload(net, PAYLOAD | {"address": {"properties": {"number": {"type": "string"}}}})
        assert refused(net) == "net.changed: its payload has no 'address.text' any more"

    def test_a_trigger_type_that_is_gone_is_refused(self, net):
        (net.path / "triggers/changed.yaml").unlink()
        assert refused(net) == "its trigger type net.changed is gone"

    def test_a_parameter_that_its_trigger_has_not_is_refused(self, net):
        schema = {"type": "object", "required": ["site"]}
        net.write("triggers/changed.yaml", str({"name": "changed", "parameters_schema": schema,
                  "payload_schema": {"properties": PAYLOAD}}))  # fmt: skip
        assert "site" in refused(net)

    def test_what_no_rule_reads_may_change(self, net):
        payload(net, PAYLOAD | {"more": {"type": "string"}})
        install(net.path)
        payload(net, PAYLOAD)
        assert install(net.path).updated == ("net.changed",)


class TestAction:
    def test_one_that_is_gone_is_refused(self, net):
        (net.path / "actions/ping.yaml").unlink()
        assert refused(net) == "its action net.ping is gone"

    def test_a_parameter_that_becomes_required_is_refused(self, net):
        net.action(parameters={"properties": {"host": {"type": "string"}, "n": {}},
                               "required": ["host", "n"]})  # fmt: skip
        assert refused(net) == "net.ping needs the parameter 'n'"

    def test_a_parameter_of_another_type_is_refused(self, net):
        net.action(entry_point=["ping"], parameters={"properties": {"host": {"type": "integer"}}})
        assert refused(net) == "net.ping takes another 'host': integer, not string"


class TestAccepted:
    def test_what_would_break_is_disabled_and_said(self, net):
        payload(net, {})
        report = install(net.path, accepts_breaking=True)
        assert report.broken == ("other.watch",)
        assert Rule.objects.get().enabled_override is False

    def test_nothing_is_changed_if_it_is_refused(self, net):
        net.write("pack.yaml", 'name: net\nversion: "2.0"\n')
        payload(net, {})
        refused(net)
        assert Pack.objects.get(name="net").version == "1.0"
        assert Rule.objects.get().is_enabled

    def test_rules_that_are_disabled_already_do_not_count(self, net):
        rules.disable("other.watch", now=NOW)
        payload(net, {})
        assert install(net.path).broken == ()


class TestRemoval:
    def test_of_what_rules_of_others_use_is_refused(self, net):
        with pytest.raises(WouldBreak, match=r"rule other\.watch: its action net\.ping is gone"):
            removal.finish("net", now=NOW)

    def test_it_disables_them_if_that_is_accepted(self, net):
        assert "other.watch" in removal.finish("net", now=NOW, accepts_breaking=True).disabled
        assert not Rule.objects.get().is_enabled

    def test_rules_of_the_pack_are_retired_and_keep_an_operators_word(self, net, tmp_path):
        rules.disable("other.watch", now=NOW)
        removal.begin("other", now=NOW)
        removal.finish("other", now=NOW)
        rule = Rule.objects.get()
        assert (rule.retired_at, rule.enabled_override) == (NOW, False)
        install(tmp_path / "other")
        rule.refresh_from_db()
        assert (rule.retired_at, rule.enabled_override) == (None, False)


def test_linked_packs_are_compared_as_well(net):
    payload(net, {})
    with pytest.raises(WouldBreak):
        packs.install(packs.load(net.path), now=NOW)


class TestWhoMayDisable:
    """Whoever may install one pack changes nothing of others."""

    INSTALLS = given("packs.install", packs=["net"])

    def upgrade(self, net: Folder, *grants: Any) -> packs.InstallReport:
        (net.path / "actions/ping.yaml").unlink()
        who = principal(self.INSTALLS, *grants)
        return install(net.path, principal=who, accepts_breaking=True)

    def test_rules_of_a_pack_without_the_permission_are_not_disabled(self, net):
        with pytest.raises(PermissionMissing, match=r"rules\.enable"):
            self.upgrade(net, given("rules.enable", packs=["net"]))
        assert Rule.objects.get(ref="other.watch").is_enabled

    def test_those_of_one_with_it_are(self, net):
        report = self.upgrade(net, given("rules.enable", packs=["other"]))
        assert report.broken == ("other.watch",)

    def test_neither_does_a_removal(self, net):
        with pytest.raises(PermissionMissing):
            removal.begin("net", now=NOW, principal=principal(self.INSTALLS), accepts_breaking=True)
        assert Pack.objects.get(name="net").draining_since is None

    def test_a_refusal_names_what_the_caller_may_see(self, net):
        payload(net, {})
        for grants, text in [((), "1 that the caller may not see"),
                             ((given("viewer"),), "rule other.watch")]:  # fmt: skip
            with pytest.raises(WouldBreak) as error:
                install(net.path, principal=principal(self.INSTALLS, *grants))
            assert text in str(error.value)
