"""Packs: every problem has a place, a valid pack is installed whole, a broken one not at all."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command

from orchestrator.core import packs
from orchestrator.core.models import Action, Pack
from orchestrator.core.packs import Problem
from orchestrator.core.retry_policy import RetryPolicy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
CORE = Path(settings.BASE_DIR) / "packs" / "core"

PING = """\
name: ping
runtime: shell
entry_point: [ping, "{host}"]
parameters:
  properties:
    host: {type: string}
  required: [host]
"""


class Folder:
    """A pack's folder to write into; its problems come back relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("pack.yaml", 'name: net\nversion: "1.0"\n')

    def write(self, name: str, text: str | bytes) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def action(self, name: str = "ping", **values: Any) -> None:
        known = yaml.safe_load(PING) | {"name": name} | values
        self.write(f"actions/{name}.yaml", yaml.safe_dump(known))

    def load(self) -> packs.PackDefinition:
        return packs.load(self.path)

    def problems(self) -> list[str]:
        with pytest.raises(packs.InvalidPack) as error:
            self.load()
        return [str(problem).removeprefix(f"{self.path}/") for problem in error.value.problems]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "net")


class TestLoad:
    def test_the_core_pack_is_valid(self):
        definition = packs.load(CORE)
        refs = [action.ref for action in definition.actions]
        assert refs == [
            "core.echo", "core.fail", "core.http_get", "core.node_echo", "core.noop", "core.sha256",
            "core.shell", "core.sleep",
        ]  # fmt: skip
        sha256 = definition.actions[5]
        assert sha256.idempotent
        assert RetryPolicy.from_dict(sha256.retry_policy).max_attempts == 3

    def test_what_a_file_does_not_say_has_its_default(self, folder):
        folder.write("actions/ping.yaml", PING)
        definition = folder.load()
        assert definition == packs.PackDefinition(
            name="net",
            version="1.0",
            description="",
            path=str(folder.path),
            actions=(
                packs.ActionDefinition(
                    ref="net.ping",
                    runtime="shell",
                    entry_point=["ping", "{host}"],
                    parameters_schema={
                        "properties": {"host": {"type": "string"}},
                        "required": ["host"],
                    },
                ),
            ),
        )

    def test_all_problems_of_all_files_are_reported_at_once_with_their_lines(self, folder):
        folder.write("pack.yaml", "nam: net\nversion: 1.0\n")
        folder.write(
            "actions/a.yaml",
            "name: Ping it\nruntime: shel\nentry_point: [x]\n"
            "timeout_seconds: -5\ntimeout_secs: 3\nretry:\n  max_attempts: 0\n",
        )
        assert folder.problems() == [
            "actions/a.yaml:1:7: name: expected at most 60 of a-z, 0-9, _, . and -, "
            "found 'Ping it'",
            "actions/a.yaml:2:10: runtime: expected one of python, shell, node, http, container, "
            "found 'shel'",
            "actions/a.yaml:4:18: timeout_seconds: expected a number above 0, found -5",
            "actions/a.yaml:5:1: timeout_secs: unknown key, did you mean 'timeout_seconds'?",
            "actions/a.yaml:7:17: retry.max_attempts: expected a whole number above 0, found 0",
            "pack.yaml:1:1: nam: unknown key, did you mean 'name'?",
            "pack.yaml:1:1: name: missing key, expected at most 60 of a-z, 0-9, _ and -",
            'pack.yaml:2:10: version: expected text of at most 40 characters, such as "1.0" '
            "with its quotes, found 1.0",
        ]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (PING + "name: pong\n", "8:1: name: given twice, the first time in line 1"),
            (PING + "x: [1", "8:6: not YAML: while parsing a flow sequence expected"),
            ("", "expected a mapping, found an empty file"),
            ("- a\n", "1:1: expected a mapping, found ['a']"),
            ("&a [*a]", "1:1: not YAML: an alias refers to what it is part of"),
            (b"name: \xff", "expected UTF-8, found byte 0xff"),
            ("name: \x01", "not YAML: character U+0001 is not allowed"),
            (PING + "description: 2024-01-01\n", "8:14: expected text or a number, found 2024-01"),
            (PING + "timeout_seconds: .nan\n", "8:18: expected a finite number, found .nan"),
            (PING + "<<: {enabled: true}\n", "8:1: expected a key, found a merge key '<<'"),
            (PING + "retry: !!set {a}\n", "8:8: expected no tag, found tag:yaml.org,2002:set"),
            (PING + "? [a]\n: 1\n", "8:3: expected a key, found a list or mapping"),
            (PING + "--- {}\n", "8:1: not YAML: expected a single document"),
            ("[" * 5000, "nested too deeply"),
        ],
    )
    def test_a_file_that_is_not_plain_yaml_is_refused_with_its_line(self, folder, text, problem):
        folder.write("actions/ping.yaml", text)
        found = [p.removeprefix("actions/ping.yaml:").strip() for p in folder.problems()]
        assert any(p.startswith(problem) for p in found), found

    def test_a_small_file_cannot_mean_a_huge_one(self, folder):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
        folder.write("actions/ping.yaml", "\n".join(lines))
        assert any("more than 20,000 values" in problem for problem in folder.problems())

    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            ({"timeout_seconds": True}, "timeout_seconds: expected a number above 0, found True"),
            ({"queue_ttl_ms": 0}, "queue_ttl_ms: expected a whole number above 0, found 0"),
            (
                {"queue_ttl_ms": 300_001},
                "queue_ttl_ms: expected at most 300000 (the TTL of a worker's queue, "
                "MUSTER_WORKER_QUEUE_TTL_MS), found 300001",
            ),
            ({"queue_ttl_ms": 1.5}, "queue_ttl_ms: expected a whole number above 0, found 1.5"),
            ({"idempotent": "yes"}, "idempotent: expected true or false, found 'yes'"),
            ({"on_no_worker": "hope"}, "on_no_worker: expected one of fail, wait, found 'hope'"),
            ({"retry": 3}, "retry: expected a mapping, found 3"),
            ({"worker_selector": 3}, "worker_selector: expected a mapping of labels, found int"),
            (
                {"worker_selector": {"gpu": True}},
                "worker_selector.gpu: expected a label of 1 to 100 characters of text, found True",
            ),
            (
                {"scheduled_timeout_seconds": 0},
                "scheduled_timeout_seconds: expected a number above 0, found 0",
            ),
            ({"retry": {"backof": "none"}}, "retry.backof: unknown key, did you mean 'backoff'?"),
            ({"retry": {"retry_on": ["bad_luck"]}}, "retry.retry_on: expected a list of action_f"),
            ({"entry_point": "ping"}, "entry_point: expected a list of arguments, the command f"),
            ({"entry_point": []}, "entry_point: expected a list of arguments, the command first"),
            ({"entry_point": ["a", 3]}, "entry_point: expected text, found 3"),
            ({"entry_point": ["{hots}"]}, "entry_point: {hots}: expected one of the parameters (h"),
            ({"parameters": {"type": "array"}}, "parameters.type: expected 'object', as parameter"),
            ({"parameters": {"type": "obj"}}, "parameters.type: expected one of array, boolean"),
            ({"parameters": {"required": "host"}}, "parameters.required: 'host' is not of type"),
            (
                {"parameters": {"properties": {"a": {"pattern": "["}}}},
                "parameters.properties.a.pattern: '[' is not a 'regex'",
            ),
            (
                {"parameters": {"properties": {"a": {"$ref": "#/$defs/a"}}}},
                "parameters.properties.a.$ref: refers to #/$defs/a, which the schema does not ha",
            ),
            (
                {"parameters": {"$ref": "http://127.0.0.1/schema.json"}},
                "parameters.$ref: expected a reference that begins with #",
            ),
            (
                {"runtime": "python", "entry_point": "ping"},
                "entry_point: expected package.module:function, found 'ping'",
            ),
            (
                {"runtime": "python", "entry_point": ["a"]},
                "entry_point: expected package.module:function, found ['a']",
            ),
        ],
    )
    def test_a_wrong_value_is_named_with_what_was_expected_and_found(self, folder, values, problem):
        folder.action(**values)
        found = [text.split(": ", 1)[1] for text in folder.problems()]
        assert any(text.startswith(problem) for text in found), found

    def test_a_problem_deep_in_a_schema_has_its_own_line(self, folder):
        text = PING.replace("host: {type: string}", "host:\n      type: strin")
        folder.write("actions/ping.yaml", text)
        assert folder.problems()[0].startswith("actions/ping.yaml:7:13: parameters.properties.host")

    @pytest.mark.parametrize(
        ("item", "schema", "required", "problem"),
        [
            ("{v}", {"type": "string"}, [], "it must be in `required`"),
            ("{v}", {"type": "array"}, ["v"], "only if its `items` are of type string"),
            ("x{v}", {"type": "array", "items": {"type": "string"}}, ["v"], "of its own"),
        ],
    )
    def test_a_placeholder_that_could_not_be_filled_is_refused(
        self, folder, item, schema, required, problem
    ):
        parameters = {"properties": {"v": schema}, "required": required}
        folder.action(entry_point=["echo", item], parameters=parameters)
        (found,) = folder.problems()
        assert problem in found

    def test_two_actions_of_one_name_are_refused(self, folder):
        folder.write("actions/a.yaml", PING)
        folder.write("actions/b.yaml", PING)
        assert folder.problems() == [
            "actions/b.yaml:1:1: name: expected a name of its own, found 'ping', as in a.yaml:1"
        ]

    def test_a_file_that_would_be_overlooked_is_refused(self, folder):
        folder.write("actions/a.yml", PING)
        assert folder.problems() == [
            "actions/a.yml: expected a name that ends in .yaml, found .yml"
        ]

    @pytest.mark.parametrize(
        ("module", "problem"),
        [
            (None, "expected the module in actions.py, found no such file"),
            ("def g(): pass", "actions.py: expected a function 'f', found none"),
            ("async def f(): pass", "actions.py: expected a function, found the coroutine 'f'"),
            ("def f(:", "actions.py: not Python: "),
        ],
    )
    def test_a_python_function_that_the_pack_lacks_is_refused(self, folder, module, problem):
        folder.action(runtime="python", entry_point="net.actions:f")
        if module is not None:
            folder.write("actions.py", module)
        (found,) = folder.problems()
        assert problem in found

    @pytest.mark.parametrize(
        "module",
        ["def f(): pass", "f = print", "from os import getcwd as f", "from os import *",
         "if True:\n    def f(): pass", "class f: pass"],
    )  # fmt: skip
    def test_a_python_function_of_the_pack_is_found_without_running_it(self, folder, module):
        folder.action(runtime="python", entry_point="net.actions:f")
        folder.write("actions.py", f"{module}\nraise SystemExit('imported')\n")
        assert folder.load().actions[0].entry_point == "net.actions:f"

    def test_a_folder_that_is_not_there_is_one_problem(self, tmp_path):
        with pytest.raises(packs.InvalidPack, match="nowhere: expected a folder, found none"):
            packs.load(tmp_path / "nowhere")


GET = {"runtime": "http", "entry_point": "https://example.org/{host}"}


class TestRuntimes:
    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            ({"limits": {"memry_mb": 3}}, "limits.memry_mb: unknown key, did you mean 'memory_m"),
            ({"limits": {"processes": 0}}, "limits.processes: expected a whole number above 0, fo"),
            ({"options": {"result": "yes"}}, "options.result: expected one of none, last_line, fi"),
            ({"options": {"env": {"MSTR_X": "1"}}}, "options.env: expected variables (not MSTR_.."),
            ({"options": 3}, "options: expected a mapping, found 3"),
            ({"runtime": "node", "entry_point": ["../x.js"]}, "entry_point: expected a script in "),
            ({"runtime": "container"}, "options.image: missing key, expected the name of an image"),
            ({**GET, "entry_point": "ftp://x"}, "entry_point: expected a URL that begins with htt"),
            ({**GET, "entry_point": "http://x/{hots}"}, "entry_point: {hots}: expected one of the"),
            ({**GET, "options": {"method": "get"}}, "options.method: expected one of GET, HEAD, "),
            ({**GET, "options": {"headers": {"a": "b\nc"}}}, "options.headers: expected names w"),
            ({**GET, "options": {"body": {"a": ["{x}"]}}}, "options.body.a.0: {x}: expected one "),
            ({**GET, "limits": {"processes": 3}}, "limits.processes: unknown key, expected one of"),
        ],
    )
    def test_options_and_limits_are_checked_as_their_runtime_has_them(
        self, folder, values, problem
    ):
        folder.action(**values)
        (found,) = folder.problems()
        assert problem in found
        assert found.startswith("actions/ping.yaml:")

    def test_a_problem_deep_in_a_template_has_its_line(self, folder):
        folder.write(
            "actions/a.yaml",
            "name: a\nruntime: http\nentry_point: http://x/\noptions:\n  body:\n    - '{x}'\n",
        )
        assert folder.problems()[0].startswith("actions/a.yaml:6:7: options.body.0: {x}: ")

    @pytest.mark.parametrize(
        "more", [{"limits": {"processes": 3}}, {"options": {"env": {"A": "1"}}}]
    )
    def test_an_action_in_the_workers_own_process_cannot_be_limited(self, folder, more):
        folder.write("actions.py", "def f(): ...\n")
        folder.action(runtime="python", entry_point="net.actions:f", **more)
        (problem,) = folder.problems()
        assert "needs `options: {process: true}`" in problem

    @pytest.mark.parametrize(
        ("options", "requirements", "expected"),
        [
            ({}, False, {}),
            ({}, True, {"process": True}),
            ({"process": False}, True, {"process": False}),
            ({"interpreter": "python3"}, False, {"interpreter": "python3", "process": True}),
        ],
    )
    def test_python_actions_leave_the_worker_where_they_need_an_environment_of_their_own(
        self, folder, options, requirements, expected
    ):
        folder.write("actions.py", "def f(): ...\n")
        if requirements:
            folder.write("requirements.txt", "")
        folder.action(runtime="python", entry_point="net.actions:f", options=options)
        assert folder.load().actions[0].runtime_options == expected

    @pytest.mark.django_db
    def test_options_and_limits_are_installed(self, folder):
        folder.action(limits={"memory_mb": 64}, options={"result": "last_line"})
        packs.install(folder.load(), now=NOW)
        action = Action.objects.get(ref="net.ping")
        assert (action.limits, action.runtime_options) == (
            {"memory_mb": 64},
            {"result": "last_line"},
        )


@pytest.mark.django_db
class TestInstall:
    def test_a_new_pack_is_created_as_it_is_defined(self):
        report = packs.install(packs.load(CORE), now=NOW)
        assert len(report.created) == Action.objects.count() == 8
        shell = Action.objects.get(ref="core.shell")
        assert (shell.runtime, shell.entry_point, shell.updated_at) == ("shell", ["{argv}"], NOW)
        assert shell.pack.path == str(CORE)

    def test_installing_it_again_changes_nothing(self):
        packs.install(packs.load(CORE), now=NOW)
        report = packs.install(packs.load(CORE), now=LATER)
        assert len(report.unchanged) == 8
        assert not report.created + report.updated + report.disabled
        assert set(Action.objects.values_list("updated_at", flat=True)) == {NOW}
        assert Pack.objects.get().installed_at == NOW

    def test_only_what_changed_is_updated(self, folder):
        folder.action("a")
        folder.action("b")
        packs.install(folder.load(), now=NOW)
        folder.action("b", timeout_seconds=5)
        report = packs.install(folder.load(), now=LATER)
        assert (report.updated, report.unchanged) == (("net.b",), ("net.a",))
        changed = Action.objects.get(ref="net.b")
        assert (changed.timeout_seconds, changed.updated_at) == (5, LATER)

    def test_an_action_that_left_is_disabled_and_one_that_returns_enabled(self, folder):
        folder.action("a")
        folder.action("b")
        packs.install(folder.load(), now=NOW)
        (folder.path / "actions/b.yaml").unlink()
        assert packs.install(folder.load(), now=LATER).disabled == ("net.b",)
        assert not Action.objects.get(ref="net.b").enabled
        assert packs.install(folder.load(), now=LATER).disabled == ()
        folder.action("b")
        assert packs.install(folder.load(), now=LATER).updated == ("net.b",)
        assert Action.objects.get(ref="net.b").enabled

    def test_a_new_version_is_recorded(self, folder):
        packs.install(folder.load(), now=NOW)
        folder.write("pack.yaml", 'name: net\nversion: "2.0"\n')
        packs.install(folder.load(), now=LATER)
        pack = Pack.objects.get()
        assert (pack.version, pack.installed_at) == ("2.0", LATER)

    def test_an_action_of_another_pack_is_not_taken_over(self, folder):
        other = Pack.objects.create(name="other", version="1", path="/", installed_at=NOW)
        Action.objects.create(
            pack=other, ref="net.ping", runtime="shell", entry_point=["x"], updated_at=NOW
        )
        folder.action("ping")
        with pytest.raises(packs.RefTaken, match=r"net\.ping belongs to the pack other 1"):
            packs.install(folder.load(), now=NOW)
        assert Pack.objects.count() == 1


class TestParameters:
    def action(self, schema: dict[str, Any], *, updated_at: datetime = NOW) -> Action:
        return Action(pk=1, ref="net.ping", parameters_schema=schema, updated_at=updated_at)

    def test_valid_parameters_have_no_problems_and_get_no_defaults(self):
        parameters: dict[str, Any] = {}
        schema = {"properties": {"count": {"type": "integer", "default": 3}}}
        assert packs.validate_parameters(self.action(schema), parameters) == []
        assert parameters == {}

    def test_every_problem_has_its_json_pointer(self):
        schema = {
            "type": "object",
            "properties": {"a/b~": {"type": "array", "items": {"type": "integer"}}},
            "required": ["host"],
            "additionalProperties": False,
        }
        problems = packs.validate_parameters(self.action(schema), {"a/b~": [1, "x"], "more": 1})
        assert problems == [
            Problem("", "'host' is a required property"),
            Problem("", "Additional properties are not allowed ('more' was unexpected)"),
            Problem("/a~1b~0/1", "'x' is not of type 'integer'"),
        ]

    def test_a_changed_schema_counts_from_the_next_call_on(self):
        assert packs.validate_parameters(self.action({}), {}) == []
        changed = self.action({"required": ["host"]}, updated_at=LATER)
        assert len(packs.validate_parameters(changed, {})) == 1

    def test_a_long_value_is_not_repeated_whole(self):
        schema = {"properties": {"a": {"type": "integer"}}}
        (problem,) = packs.validate_parameters(self.action(schema), {"a": "x" * 10_000})
        assert len(problem.message) < 400

    def test_problems_are_counted_only_up_to_a_limit(self):
        schema = {"properties": {"a": {"items": {"type": "integer"}}}}
        problems = packs.validate_parameters(self.action(schema), {"a": ["x"] * 10_000})
        assert len(problems) == 50

    def test_nothing_is_fetched_to_validate(self):
        schema = {"$ref": "http://127.0.0.1:9/schema.json"}
        (problem,) = packs.validate_parameters(self.action(schema), {})
        assert "which it lacks" in problem.message


@pytest.mark.django_db
class TestCommand:
    def run(self, *arguments: str) -> str:
        stdout = io.StringIO()
        call_command("pack", *arguments, stdout=stdout)
        return stdout.getvalue()

    def test_validate_shows_the_actions_and_installs_nothing(self):
        assert "core.sha256" in self.run("validate", str(CORE))
        assert not Pack.objects.exists()

    def test_install_counts_what_it_did(self):
        assert "8" in self.run("install", str(CORE))
        assert Action.objects.count() == 8

    def test_a_broken_pack_exits_with_1_and_prints_every_problem(self, folder):
        folder.action(timeout_seconds=0, idempotent=3)
        stderr = io.StringIO()
        with pytest.raises(SystemExit) as exit_:
            call_command("pack", "install", str(folder.path), stderr=stderr)
        assert exit_.value.code == 1
        first, second, summary = stderr.getvalue().splitlines()
        assert first.startswith(f"{folder.path}/actions/ping.yaml:4:")
        assert "timeout_seconds: expected a number above 0, found 0" in second
        assert summary == "2 problems; nothing was changed."
        assert not Pack.objects.exists()

    def test_list_says_what_is_installed_and_what_is_disabled(self):
        assert "No pack is installed" in self.run("list")
        self.run("install", str(CORE))
        Action.objects.filter(ref="core.fail").update(enabled=False)
        assert "core.fail (disabled)" in self.run("list")

    def test_list_as_json_is_for_scripts(self):
        self.run("install", str(CORE))
        (pack,) = json.loads(self.run("list", "--json"))
        assert (pack["name"], pack["version"]) == ("core", "1.0")
        assert pack["actions"][0] == {
            "ref": "core.echo",
            "runtime": "python",
            "description": "Returns its parameters.",
            "enabled": True,
        }
