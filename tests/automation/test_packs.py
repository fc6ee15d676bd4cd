"""Packs bring trigger types and rules, and each problem with them has its file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from orchestrator.automation import rules
from orchestrator.automation.models import Enforcement, Rule, Timer, TriggerType
from orchestrator.automation.trigger_types import install_built_in
from orchestrator.core import packs
from orchestrator.core.models import Pack
from tests import commands
from tests.core.packs.folder import Folder
from tests.factories import NOW

WATCH = Path(settings.BASE_DIR) / "packs" / "watch"
RULE = """\
name: ping
trigger:
  type: net.changed
  parameters: {zone: a}
criteria:
  trigger.host: {type: eq, pattern: web1}
action:
  ref: net.ping
  parameters: {host: web1}
"""
TYPE = """\
name: changed
parameters_schema:
  properties: {zone: {enum: [a, b]}}
  additionalProperties: false
payload_schema: {properties: {host: {type: string}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    made.action()
    made.write("triggers/changed.yaml", TYPE)
    made.write("rules/ping.yaml", RULE)
    return made


def install(folder: Folder) -> packs.InstallReport:
    install_built_in(now=NOW)
    return packs.install(folder.load(), now=NOW)


def test_rule_is_read_as_it_is_written(folder: Folder) -> None:
    assert folder.load().contents["rules"][0] == yaml.safe_load(RULE)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("type: eq,", "type: eqals,", "6:24: criteria['trigger.host'].type: unknown operator"),
        ("trigger.host", "triger.host", "6:16: criteria['triger.host']: unknown name"),
        ("type: net.changed", "type: net.chnged",
         "3:9: trigger.type: no trigger type is called 'net.chnged'; did you mean 'net.changed'?"),
        ("type: net.changed", "type: core.intervl",
         "3:9: trigger.type: no trigger type is called 'core.intervl'; did you mean "
         "'core.interval'?"),
        ("type: net.changed", "type: [net]", "3:9: trigger.type: expected a trigger type, as pack"),
        ("ref: net.ping", "ref: {a: b}", "8:8: action.ref: expected an action, as pack.name"),
        ("{zone: a}", "{zone: c}", "4:22: trigger.parameters.zone: expected"),
        ("ref: net.ping", "ref: net.pnig",
         "8:8: action.ref: no action is called 'net.pnig'; did you mean 'net.ping'?"),
        ("{host: web1}", "{host: 5}", "9:22: action.parameters.host: expected"),
        ("{host: web1}", "{hots: web1}", "9:15: action.parameters"),
        ("{host: web1}", "'{{ x }}'", "9:15: action.parameters: expected a mapping"),
        ("{host: web1}", '{host: "{{ triger.host }}"}', "9:22: action.parameters.host: "),
        ("name: ping", "name: ping\ntype: backstp", "2:7: type: expected one of standard, backst"),
        ("name: ping", "name: ping\nsupress: {}", "2:1: supress: unknown key, did you mean "
                                                  "'suppress'?"),
        ("name: ping", "name: ping\nsuppress: {seconds: 5, buy: a}", "2:29: suppress.buy: "),
        ("name: ping", "name: ping\npriority: 1000", "2:11: priority: expected -100 to 100"),
    ],
)  # fmt: skip
def test_problem_has_its_line(folder: Folder, old: str, new: str, said: str) -> None:
    assert old in RULE
    folder.write("rules/ping.yaml", RULE.replace(old, new, 1))
    problems = folder.problems()
    assert problems[0].startswith(f"rules/ping.yaml:{said}"), problems
    assert len(problems) <= 2


@pytest.mark.parametrize(
    ("kind", "parameters", "said"),
    [
        ("core.cron", {"cron": "61 * * * *"}, "cron"),
        ("core.cron", {"cron": "0 5 * * *", "timezone": "Europe/Berln"}, "Europe/Berlin"),
        ("core.interval", {"every_second": 5}, "did you mean 'every_seconds'?"),
        ("core.execution", {"statuses": ["faild"]}, "trigger.parameters.statuses"),
        ("core.investigation", {"reasons": ["posion"]}, "trigger.parameters.reasons"),
        ("core.investigation", {"subject_kinds": ["tusk"]}, "trigger.parameters.subject_kinds"),
    ],
)
def test_problem_with_a_timer_has_its_line(
    folder: Folder, kind: str, parameters: dict[str, Any], said: str
) -> None:
    document = yaml.safe_load(RULE) | {"trigger": {"type": kind, "parameters": parameters}}
    folder.write("rules/ping.yaml", yaml.safe_dump(document))
    problems = folder.problems()
    assert any(said in problem for problem in problems), problems
    assert all(problem.startswith("rules/ping.yaml:") for problem in problems)


def test_all_problems_of_all_files_are_named_at_once(folder: Folder) -> None:
    folder.write("triggers/changed.yaml", "name: changed\npayload_schema: {type: text}\n")
    folder.write("rules/ping.yaml", RULE.replace("eq", "like").replace("net.ping", "net.pong"))
    files = [problem.split(":")[0] for problem in folder.problems()]
    assert files == ["rules/ping.yaml"] * 2 + ["triggers/changed.yaml"]


@pytest.mark.django_db
class TestInstalled:
    def test_pack_brings_its_types_timers_and_rules(self, folder: Folder) -> None:
        timer = {"name": "tick", "trigger": {"type": "core.cron", "parameters": {"cron": "@daily"}}}
        timer["action"] = {"ref": "net.ping", "parameters": {"host": "a"}}
        folder.write("rules/tick.yaml", yaml.safe_dump(timer))
        report = install(folder)
        assert set(report.created) == {"net.ping", "net.changed", "net.tick"}
        assert TriggerType.objects.get(ref="net.changed").pack == Pack.objects.get()
        assert Timer.objects.get().next_fire_at is not None
        assert install(folder).created == ()

    def test_problem_that_only_the_database_knows_has_its_line(
        self, folder: Folder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = RULE.replace("net.changed", "nett.changed").replace("net.ping", "core.ecko")
        folder.write("rules/ping.yaml", text)
        folder.load()
        with pytest.raises(SystemExit):
            commands.printed("pack", "install", str(folder.path))
        first, second, count = capsys.readouterr().err.splitlines()
        assert "rules/ping.yaml:3:9: trigger.type: no trigger type is called" in first
        assert "rules/ping.yaml:8:8: action.ref: no action is called 'core.ecko'" in second
        assert count == "2 problems; nothing was changed."
        assert not Rule.objects.exists()

    def test_upgrade_keeps_what_an_operator_switched(self, folder: Folder) -> None:
        install(folder)
        rules.disable("net.ping", now=NOW)
        folder.write("rules/ping.yaml", RULE + "priority: 5\n")
        assert install(folder).updated == ("net.ping",)
        rule = rules.find("net.ping")
        assert (rule.current.number, rule.is_enabled) == (2, False)

    def test_rule_that_left_the_pack_is_retired_and_comes_back_with_it(
        self, folder: Folder
    ) -> None:
        install(folder)
        (folder.path / "rules" / "ping.yaml").unlink()
        (folder.path / "triggers" / "changed.yaml").unlink()
        assert set(install(folder).disabled) == {"net.ping", "net.changed"}
        assert rules.find("net.ping").retired_at == NOW
        assert TriggerType.objects.get(ref="net.changed").retired_at == NOW
        folder.write("triggers/changed.yaml", TYPE)
        folder.write("rules/ping.yaml", RULE)
        install(folder)
        assert rules.find("net.ping").is_enabled

    def test_rule_may_have_empty_criteria(self, folder: Folder) -> None:
        folder.write("rules/ping.yaml", yaml.safe_dump(yaml.safe_load(RULE) | {"criteria": None}))
        install(folder)
        assert rules.find("net.ping").current.criteria == {}

    def test_backstop_is_a_type_of_rule(self, folder: Folder) -> None:
        folder.write("rules/ping.yaml", RULE + "type: backstop\n")
        install(folder)
        assert rules.find("net.ping").current.options == {"backstop": True}

    def test_example_pack_is_installed(self) -> None:
        install_built_in(now=NOW)
        packs.install(packs.load(WATCH), now=NOW)
        enabled = Rule.objects.enabled().values_list("ref", flat=True)
        assert list(enabled) == ["watch.deployed", "watch.failed", "watch.heartbeat"]
        assert not Enforcement.objects.exists()
