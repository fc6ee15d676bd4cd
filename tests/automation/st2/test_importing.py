"""Each kind of file of a StackStorm pack: what becomes of it, or why nothing does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.automation import st2
from orchestrator.automation.st2 import Report
from orchestrator.automation.st2.report import CHANGED, LEFT_OUT
from orchestrator.core import packs
from tests import commands
from tests.automation.st2 import theirs

run, document, refused = commands.of("import-st2")


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return st2.import_pack(theirs.write(tmp_path / "theirs"), into=tmp_path / "ours")


def values(report: Report, name: str) -> Any:
    return yaml.safe_load((report.folder / name).read_text())


def reasons(report: Report, kind: str = LEFT_OUT) -> dict[str, str]:
    return {each.what: each.reason for each in report.of(kind)}


def test_what_is_made_is_a_valid_pack(report: Report) -> None:
    made = packs.load(report.folder)
    assert (made.name, made.version, made.description) == (
        "disk_watch",
        "1.2.0",
        "Looks after disks.",
    )
    assert {action.ref for action in made.actions} == {
        f"disk_watch.{name}" for name in ("usage", "say", "any", "clean", "report")
    }
    assert {rule["name"] for rule in made.contents["rules"]} == {"full", "hourly", "ended"}
    assert {kind["name"] for kind in made.contents["triggers"]} == {"measured", "grown"}


def test_nothing_is_dropped_in_silence(report: Report) -> None:
    found = reasons(report)
    assert "write a task template" in found["action flow, runner_type"]
    assert "by SSH" in found["action copy, runner_type"]
    assert "datastore" in found["rule secret, action.parameters.path"]
    assert "about" in found["rule odd, criteria"]
    assert "no action is called 'disk_watch.flow'" in found["rule flows"]
    assert "a `retry`" in found["policy again, policy_type"]
    assert "no chat" in found["alias clean"]
    assert "key" in found["configuration, token"]
    assert "left out" in found["action clean, parameters.force"]
    assert "the runner" in found["action report, parameters.cookies"]
    assert "no place" in found["action report, parameters.label"]
    page = (report.folder / "IMPORTED.md").read_text()
    assert all(reason in page for reason in found.values())
    places = {each.what: (each.file, each.line) for each in report.of(LEFT_OUT)}
    assert places["action flow, runner_type"] == ("actions/flow.yaml", 2)
    assert places["rule secret, action.parameters.path"] == ("rules/secret.yaml", 6)


def test_python_action_becomes_a_function_of_a_module(report: Report) -> None:
    action = values(report, "actions/usage.yaml")
    assert action["entry_point"] == "disk_watch.st2_actions:action_usage"
    assert (action["options"], action["timeout_seconds"]) == ({"process": True}, 30)
    assert action["parameters"] == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "unit": {"type": "string", "default": "percent", "enum": ["percent", "bytes"]},
            "note": {"type": "string"},
        },
        "additionalProperties": False,
        "required": ["path"],
    }
    module = (report.folder / "st2_actions.py").read_text()
    assert "'fixed': 'always'" in module
    assert "timeout" not in module
    assert (report.folder / "actions/code/usage.py").is_file()


def test_values_of_a_command_are_arguments(report: Report) -> None:
    action = values(report, "actions/say.yaml")
    assert action["entry_point"] == [
        "sh",
        "-c",
        'printf "%s: %s in ${{HOME}}" "${1}" "to ${2}"',
        "sh",
        "{text}",
        "{whom}",
    ]
    assert action["parameters"]["required"] == ["text", "whom"]
    assert "no shell reads them" in reasons(report, CHANGED)["action say, parameters.cmd"]
    assert values(report, "actions/any.yaml")["dangerous"] is True


def test_arguments_of_a_script_stand_where_they_did(report: Report) -> None:
    action = values(report, "actions/clean.yaml")
    assert action["entry_point"] == ["./actions/clean.sh", "--mode={mode}", "{days}", "{folder}"]
    assert "force" not in action["parameters"]["properties"]


def test_http_action_keeps_its_address_method_headers_and_body(report: Report) -> None:
    action = values(report, "actions/report.yaml")
    assert action["entry_point"] == "https://example.org/disks/{disk}"
    assert action["options"] == {
        "method": "POST",
        "headers": {"accept": "application/json"},
        "body": "{body}",
    }


def test_rule_keeps_its_criteria_and_fills_in_defaults(report: Report) -> None:
    rule = values(report, "rules/full.yaml")
    assert rule["trigger"] == {"type": "disk_watch.measured"}
    assert rule["criteria"] == {
        "trigger.percent": {"type": "gt", "pattern": 90},
        "trigger.path#1": {"type": "startswith", "pattern": "/var"},
        "trigger.path#2": {"type": "nequals", "pattern": "/var/keep"},
    }
    assert rule["action"] == {
        "ref": "disk_watch.clean",
        "parameters": {"mode": "fast", "folder": "{{ trigger.path }}", "days": 7},
    }


def test_timer_and_local_command_have_other_names(report: Report) -> None:
    rule = values(report, "rules/hourly.yaml")
    assert rule["enabled"] is False
    assert rule["trigger"] == {
        "type": "core.interval",
        "parameters": {"unit": "hours", "delta": 1},
    }
    assert rule["action"] == {
        "ref": "core.shell",
        "parameters": {
            "argv": [
                "sh",
                "-c",
                'echo "${1}" >> ~/times',
                "sh",
                "{{ (trigger.fired_at) | string }}",
            ]
        },
    }


def test_end_of_an_action_is_an_execution_with_our_words(report: Report) -> None:
    rule = values(report, "rules/ended.yaml")
    assert rule["trigger"]["type"] == "core.execution"
    assert rule["criteria"] == {
        "trigger.action_ref": {"type": "equals", "pattern": "disk_watch.clean"},
        "trigger.status": {"type": "equals", "pattern": "completed"},
    }
    text = "{{ trigger.execution_id }} of {{ trigger.action_ref }}"
    assert rule["action"] == {"ref": "core.echo", "parameters": {"message": text}}


def test_schema_of_an_older_draft_is_one_of_today(report: Report) -> None:
    assert values(report, "triggers/measured.yaml")["payload_schema"] == {
        "type": "object",
        "properties": {"path": {"type": "string"}, "percent": {"type": "number"}},
        "required": ["path"],
    }


def test_sensor_policy_and_configuration(report: Report) -> None:
    assert values(report, "sensors/disk_sensor.yaml") == {
        "name": "disk_sensor",
        "description": "Measures disks.",
        "enabled": True,
        "runtime": "python",
        "entry_point": "disk_watch.sensors.disk_sensor:DiskSensor",
        "trigger_types": ["grown"],
        "parameters": {"limit": 90, "poll_interval": 20},
    }
    assert values(report, "policies/one_at_a_time.yaml") == {
        "name": "one_at_a_time",
        "description": "One for each folder.",
        "action": "clean",
        "kind": "concurrency",
        "limit": 1,
        "on_exceed": "reject",
        "keyed_by": ["/folder"],
    }
    assert json.loads((report.folder / "config.json").read_text()) == {"limit": 90}


@pytest.mark.parametrize(
    ("type", "parameters", "ours"),
    [
        ("CronTimer", "{hour: 5, timezone: Europe/Berlin}", "core.cron"),
        ("DateTimer", "{date: '2030-01-31T12:00:00Z'}", "core.date"),
    ],
)
def test_other_timers(tmp_path: Path, type: str, parameters: str, ours: str) -> None:
    rule = f"""
        name: timed
        trigger: {{type: core.st2.{type}, parameters: {parameters}}}
        action: {{ref: core.noop}}
        """
    folder = theirs.write(tmp_path / "theirs", **{"rules/timed.yaml": rule})
    report = st2.import_pack(folder, into=tmp_path / "ours")
    trigger = values(report, "rules/timed.yaml")["trigger"]
    assert (trigger["type"], trigger["parameters"]) == (ours, yaml.safe_load(parameters))


@pytest.mark.parametrize(
    ("rule", "what", "reason"),
    [
        ("trigger: {type: core.st2.generic.notifytrigger}", "rule x, trigger.type", "notif"),
        ("trigger: {type: core.st2.unheard}", "rule x, trigger.type", "no trigger type"),
        ("trigger: {type: core.st2.IntervalTimer, parameters: {unit: years, delta: 1}}", "rule x",
         "unit"),
        ("trigger: {type: disk-watch.mesured}", "rule x", "did you mean 'disk_watch.measured'"),
    ],
)  # fmt: skip
def test_rule_that_cannot_be_ours_is_listed(
    tmp_path: Path, rule: str, what: str, reason: str
) -> None:
    text = f"name: x\n{rule}\naction: {{ref: core.noop}}\n"
    folder = theirs.write(tmp_path / "theirs", **{"rules/x.yaml": text})
    report = st2.import_pack(folder, into=tmp_path / "ours")
    assert reason in reasons(report)[what]
    assert not (report.folder / "rules/x.yaml").exists()


def test_files_that_are_no_yaml_of_ours_are_listed_with_their_problem(tmp_path: Path) -> None:
    files = {"rules/twice.yaml": "name: a\nname: b\n", "actions/list.yaml": "- one\n"}
    folder = theirs.write(tmp_path / "theirs", **files)
    found = reasons(st2.import_pack(folder, into=tmp_path / "ours"))
    assert "given twice" in found["rule twice"]
    assert "expected a mapping" in found["action list"]


def test_links_out_of_the_pack_are_not_followed(tmp_path: Path) -> None:
    folder = theirs.write(tmp_path / "theirs")
    (tmp_path / "private").write_text("private")
    (folder / "actions" / "link.py").symlink_to(tmp_path / "private")
    (folder / "lib").symlink_to(tmp_path)
    report = st2.import_pack(folder, into=tmp_path / "ours")
    assert not any("link" in name or "private" in name for name in report.made)


def imported(folder: Path, **files: str) -> Report:
    """A pack of these files alone, imported."""
    written = theirs.only(folder / "theirs", **{"pack.yaml": "ref: My-Pack\n", **files})
    return st2.import_pack(written, into=folder / "ours")


def rule_on(trigger: str, *criteria: str, more: str = "", action: str = "{ref: core.noop}") -> str:
    lines = "".join(f"  {each}\n" for each in criteria)
    head = f"name: x\nenabled: true\n{more}trigger: {trigger}\naction: {action}\n"
    return f"{head}criteria:\n{lines}" if lines else head


ENDED = "{type: core.st2.generic.actiontrigger}"
GET = "actions/get.yaml"
ACTION = """
name: {name}
runner_type: {runner}
entry_point: {entry_point}
parameters: {parameters}
"""


def action(runner: str, parameters: str, *, name: str = "get", entry_point: str = "''") -> str:
    return ACTION.format(name=name, runner=runner, parameters=parameters, entry_point=entry_point)


def test_rule_that_does_not_say_that_it_is_enabled_is_not(tmp_path: Path) -> None:
    text = "name: x\ntrigger: {type: core.st2.IntervalTimer, parameters: {unit: hours, delta: 1}}\n"
    report = imported(tmp_path, **{"rules/x.yaml": f"{text}action: {{ref: core.noop}}\n"})
    assert values(report, "rules/x.yaml")["enabled"] is False


def test_words_of_executions_are_ours_in_lists_too(tmp_path: Path) -> None:
    text = rule_on(
        ENDED,
        "trigger.status: {type: inside, pattern: [succeeded, running]}",
        "trigger.action_ref: {type: nequals, pattern: My-Pack.Get}",
        "trigger.action_name: {type: inside, pattern: [My-Pack.get, Other-Pack.put]}",
    )
    report = imported(tmp_path, **{"rules/x.yaml": text.replace("action_ref", "action_ref#1")})
    assert values(report, "rules/x.yaml")["criteria"] == {
        "trigger.status": {"type": "inside", "pattern": ["completed", "running"]},
        "trigger.action_ref#1": {"type": "nequals", "pattern": "my_pack.get"},
        "trigger.action_ref": {"type": "inside", "pattern": ["my_pack.get", "other_pack.put"]},
    }  # fmt: skip


def test_rule_on_a_status_that_is_no_end_hears_of_it(tmp_path: Path) -> None:
    text = rule_on(ENDED, "trigger.status: {type: equals, pattern: running}")
    made = values(imported(tmp_path, **{"rules/x.yaml": text}), "rules/x.yaml")
    assert made["trigger"] == {"type": "core.execution", "parameters": {"statuses": ["running"]}}


@pytest.mark.parametrize(
    ("criterion", "reason"),
    [
        ("trigger.status: {type: matchregex, pattern: succ.*}", "Muster has others"),
        ("trigger.status: {type: equals, pattern: paused}", "no status 'paused'"),
        ("trigger.status: {type: inside, pattern: 'succeeded,failed'}", "Muster has others"),
        ("trigger.action_name: {type: nequals, pattern: get_user}", "expected a ref"),
        ("trigger.action_name: {type: iequals, pattern: local}", "expected a ref"),
        ("trigger.action_ref: {type: equals, pattern: core.local}", "no execution in Muster"),
        ("trigger.action_ref: {type: startswith, pattern: My-Pack}", "Muster has others"),
        ("trigger.parameters.branch: {type: equals, pattern: main}", "have no 'parameters'"),
        ("trigger['result'].stdout: {type: equals, pattern: x}", "have no 'result'"),
    ],
)
def test_criterion_that_would_mean_something_else_is_listed(
    tmp_path: Path, criterion: str, reason: str
) -> None:
    report = imported(tmp_path, **{"rules/x.yaml": rule_on(ENDED, criterion)})
    assert not (report.folder / "rules/x.yaml").exists()
    assert any(reason in each for each in reasons(report).values()), reasons(report)


def test_rules_of_one_webhook_have_one_trigger_with_the_headers_of_all(tmp_path: Path) -> None:
    hook = "{type: core.st2.webhook, parameters: {url: GitHub/push}}"
    files = {
        "rules/a.yaml": rule_on(
            hook, "trigger.headers['X-Github-Event']: {type: equals, pattern: push}"
        ),
        "rules/b.yaml": rule_on(
            hook, "trigger.body.ref: {type: equals, pattern: main}",
            action="{ref: core.echo, parameters: {message: "
            "'{{trigger.headers[\"User-Agent\"]}} {{ trigger.headers[\"X-Id\"] }}'}}",
        ).replace("name: x", "name: b"),
    }  # fmt: skip
    report = imported(tmp_path, **files)
    made = [values(report, f"rules/{name}.yaml") for name in ("x", "b")]
    parameters = {
        "path": "github/push",
        "profile": "token",
        "headers": ["x-github-event", "x-id"],
    }
    assert [rule["trigger"]["parameters"] for rule in made] == [parameters, parameters]
    assert list(made[0]["criteria"]) == ["trigger.headers['x-github-event']"]
    message = made[1]["action"]["parameters"]["message"]
    assert message == "{{trigger.headers['user-agent']}} {{ trigger.headers['x-id'] }}"
    assert "/api/v1/hooks/github/push" in reasons(report, CHANGED)["rule x, trigger"]


@pytest.mark.parametrize(
    "criterion",
    [
        "trigger.headers['X-Hub-Signature']: {type: exists}",
        "trigger.headers: {type: exists}",
    ],
)
def test_headers_that_no_event_has_are_listed(tmp_path: Path, criterion: str) -> None:
    hook = "{type: core.st2.webhook, parameters: {url: some}}"
    report = imported(tmp_path, **{"rules/x.yaml": rule_on(hook, criterion)})
    assert any("headers" in what for what in reasons(report)), reasons(report)


def test_http_action_keeps_its_constants_and_lists_the_rest(tmp_path: Path) -> None:
    parameters = (
        "{url: {immutable: true, default: 'https://example.org/{{ path }}'},"
        " method: {immutable: true, default: POST},"
        " headers: {immutable: true, default: {Authorization: 'Bearer {{ token }}'}},"
        " params: {immutable: true, default: {page: 2}},"
        " body: {immutable: true, default: {state: '{{state}}', fixed: true}},"
        " auth: {immutable: true, default: basic}, verify_ssl_cert: {default: false},"
        " path: {type: string, required: true}, token: {type: string, required: true},"
        " state: {type: string, required: true}}"
    )
    report = imported(tmp_path, **{GET: action("http-request", parameters)})
    made = values(report, GET)
    assert made["entry_point"] == "https://example.org/{path}"
    assert made["options"] == {
        "method": "POST",
        "headers": {"Authorization": "Bearer {token}"},
        "query": {"page": 2},
        "body": {"state": "{state}", "fixed": True},
    }
    assert set(made["parameters"]["required"]) == {"path", "token", "state"}
    assert {"action get, parameters.auth", "action get, parameters.verify_ssl_cert"} <= set(
        reasons(report)
    )


def test_folder_and_environment_of_a_command_have_no_templates(tmp_path: Path) -> None:
    parameters = (
        "{cmd: {immutable: true, default: 'ls {{ name }}'}, name: {type: string, required: true},"
        " root: {immutable: true, default: /srv},"
        " cwd: {immutable: true, default: '{{ root }}/{{ name }}'},"
        " env: {immutable: true, default: {ROOT: '{{ root }}/x'}}}"
    )
    made = values(imported(tmp_path, **{GET: action("local-shell-cmd", parameters)}), GET)
    assert made["entry_point"][3] == "/srv/{name}"
    assert made["options"] == {"env": {"ROOT": "/srv/x"}}


def test_environment_that_callers_give_is_listed(tmp_path: Path) -> None:
    parameters = (
        "{cmd: {immutable: true, default: ls}, name: {type: string},"
        " env: {immutable: true, default: {NAME: '{{ name }}'}}}"
    )
    report = imported(tmp_path, **{GET: action("local-shell-cmd", parameters)})
    assert "value of a parameter" in reasons(report)["action get, parameters.env"]


def test_constants_of_a_script_are_arguments(tmp_path: Path) -> None:
    parameters = (
        "{mode: {immutable: true, default: slow}, first: {immutable: true, default: one, "
        "position: 0}, last: {type: string, required: true, position: 1},"
        " force: {immutable: true, default: true}, dry: {immutable: true, default: false}}"
    )
    text = action("local-shell-script", parameters, entry_point="get.sh")
    made = values(imported(tmp_path, **{GET: text, "actions/get.sh": "#!/bin/sh\n"}), GET)
    expected = ["./actions/get.sh", "--mode=slow", "--force", "one", "{last}"]
    assert made["entry_point"] == expected


PYTHON = "from st2common.runners.base_action import Action\nclass A(Action):\n    pass\n"


def test_environment_of_a_python_action_is_kept(tmp_path: Path) -> None:
    parameters = "{env: {default: {MODE: fast}}, log_level: {default: debug}}"
    text = action("python-script", parameters, entry_point="get.py")
    report = imported(tmp_path, **{GET: text, "actions/get.py": PYTHON})
    assert values(report, GET)["options"] == {"process": True, "env": {"MODE": "fast"}}
    assert "action get, parameters.log_level" in reasons(report)


def test_each_python_action_runs_its_own_code_whatever_its_name(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for number, name in enumerate(("get-user", "get_user", "get.user", "import", "st2", "7up")):
        files[f"actions/{name}.yaml"] = action(
            "python-script", "{}", name=name, entry_point=f"a{number}.py"
        )
        files[f"actions/a{number}.py"] = PYTHON
    report = imported(tmp_path, **files)
    assert not report.of(LEFT_OUT)
    module = (report.folder / "st2_actions.py").read_text()
    compile(module, "st2_actions.py", "exec")
    for number, name in enumerate(("get-user", "get_user", "get.user", "import", "st2", "7up")):
        function = values(report, f"actions/{name}.yaml")["entry_point"].partition(":")[2]
        body = module.partition(f"def {function}(")[2].partition("def ")[0]
        assert f"'a{number}.py'" in body


def test_types_with_large_letters_and_points_are_found_by_sensors_and_rules(
    tmp_path: Path,
) -> None:
    sensor = (
        "class_name: Watch\nentry_point: watch.py\n"
        "trigger_types: [{name: MyEvent}, {name: file_watch.line}]\n"
    )
    files = {
        "sensors/watch.yaml": sensor,
        "sensors/watch.py": "from st2reactor.sensor.base import Sensor\nclass Watch(Sensor): ...\n",
        "rules/x.yaml": rule_on("{type: My-Pack.MyEvent}"),
        "rules/y.yaml": rule_on("{type: My-Pack.file_watch.line}").replace("name: x", "name: y"),
    }
    report = imported(tmp_path, **files)
    assert not report.of(LEFT_OUT), reasons(report)
    assert values(report, "sensors/watch.yaml")["trigger_types"] == [
        "myevent",
        "my_pack.file_watch.line",
    ]
    assert values(report, "rules/x.yaml")["trigger"] == {"type": "my_pack.myevent"}
    assert "myevent here" in reasons(report, CHANGED)["sensor Watch, name"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rules/x.yaml", rule_on("{type: core.st2.IntervalTimer, parameters: bad}")),
        ("rules/x.yaml", rule_on("{type: a.b}", action="{ref: My-Pack.get, parameters: bad}")),
        ("rules/x.yaml", rule_on("{type: a.b}", more="criteria: [bad]\n")),
        ("actions/x.yaml", action("local-shell-cmd", "bad")),
        ("actions/x.yaml", action("http-request", "{headers: {default: [bad]}}")),
        ("policies/x.yaml", "name: x\nresource_ref: My-Pack.get\nparameters: bad\n"
         "policy_type: action.concurrency\n"),
        ("sensors/x.yaml", "class_name: X\nentry_point: pack.yaml\ntrigger_types: bad\n"),
    ],
)  # fmt: skip
def test_value_of_another_kind_is_listed(tmp_path: Path, name: str, text: str) -> None:
    report = imported(tmp_path, **{name: text})
    assert [each.file for each in report.of(LEFT_OUT)] == [name]


def test_links_are_listed(tmp_path: Path) -> None:
    folder = theirs.only(tmp_path / "theirs", **{"pack.yaml": "ref: p\n", "rules/a.yaml": "{}"})
    (tmp_path / "outside.yaml").write_text("name: x\n")
    (folder / "rules" / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (folder / "policies").symlink_to(tmp_path)
    report = st2.import_pack(folder, into=tmp_path / "ours")
    found = {each.file: each.reason for each in report.of(LEFT_OUT)}
    assert "a link" in found["rules/link.yaml"]
    assert "a link" in found["policies"]


# --- a pack of all formats -----------------------------------------------------------------------


def test_nothing_of_a_pack_with_all_formats_is_dropped(tmp_path: Path) -> None:
    written = theirs.only(tmp_path / "theirs", **theirs.SAMPLES)
    report = st2.import_pack(written, into=tmp_path / "ours")
    packs.load(report.folder)
    described = {name for name in theirs.SAMPLES if name.startswith(("rules/", "actions/"))}
    described = {name for name in described if not name.endswith((".py", ".sh"))}
    listed = {each.file for each in report.of(LEFT_OUT)}
    made = {item.partition(".")[0] for item in report.made}
    assert {name for name in described if name.partition(".")[0] not in made} == listed
    assert listed == {"rules/on_action.json", "rules/old_words.json", "actions/chain.yaml"}
    watched = reasons(report, CHANGED)["rule file_watch, trigger.type"]
    assert "linux.file_watch.line has to be imported too" in watched


# --- the command ---------------------------------------------------------------------------------


def test_command_says_what_it_did(tmp_path: Path) -> None:
    folder, into = theirs.write(tmp_path / "theirs"), tmp_path / "ours"
    text = run(str(folder), "--into", str(into))
    assert "actions/flow.yaml:2: action flow, runner_type: a workflow of orquesta" in text
    assert text.endswith("It is a valid pack.\n")
    message = refused(str(folder), "--into", str(into))
    assert "exists already" in message
    again = document(str(folder), "--into", str(tmp_path / "again"))
    assert again["pack"] == "disk_watch"
    assert {each["what"] for each in again["left_out"]} >= {"alias clean", "rule odd, criteria"}


def test_folder_that_is_no_pack_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    assert "pack.yaml" in refused(str(tmp_path), "--into", str(tmp_path / "ours"))
    assert not (tmp_path / "ours").exists()
