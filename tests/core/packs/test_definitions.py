"""Every problem of a pack's files has a place."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.core import packs
from orchestrator.core.models import Action
from orchestrator.core.retry_policy import RetryPolicy
from tests.core.packs.folder import CORE, PING
from tests.factories import NOW

LATER = NOW + timedelta(hours=1)


class TestLoad:
    def test_the_core_pack_is_valid(self):
        definition = packs.load(CORE)
        refs = [action.ref for action in definition.actions]
        assert refs == [
            "core.ask", "core.echo", "core.fail", "core.http_get", "core.node_echo", "core.noop",
            "core.sha256", "core.shell", "core.sleep",
        ]  # fmt: skip
        sha256 = definition.actions[6]
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
            "inquiry, found 'shel'",
            "actions/a.yaml:4:18: timeout_seconds: expected a number above 0, at most 604,800 "
            "(seven days), found -5",
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
            ("- a\n", "1:1: expected a mapping, found an array of 1"),
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
            (
                {"timeout_seconds": True},
                "timeout_seconds: expected a number above 0, at most 604,800 (seven days), "
                "found true",
            ),
            ({"timeout_seconds": 604_800.5}, "timeout_seconds: expected a number above 0, at mo"),
            ({"timeout_seconds": 1e300}, "timeout_seconds: expected a number above 0, at most 6"),
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
            (
                {"parameters": {"required": "host"}},
                "parameters.required: expected array, found '",
            ),
            (
                {"parameters": {"properties": {"a": {"pattern": "["}}}},
                "parameters.properties.a.pattern: expected a regular expression of RE2, which has "
                "no look-around and no back references, found '[': missing ]: [",
            ),
            (
                {"parameters": {"allOf": [{"$ref": "#"}]}},
                "parameters.allOf.0.$ref: leads back here for the same value, expected a property",
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

    def test_pattern_that_could_take_for_ever_is_refused_at_its_line(self, folder):
        text = PING.replace("{type: string}", r"{type: string, pattern: '^(?=.*\d)(a)\1$'}")
        folder.write("actions/ping.yaml", text)
        (found,) = folder.problems()
        assert found.startswith("actions/ping.yaml:6:35: parameters.properties.host.pattern: ")
        assert found.endswith(": look-ahead (?=")

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


HOST = {"properties": {"host": {"type": "string"}}, "required": ["host"]}
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
        ("more", "expected"),
        [
            ({"limits": {"processes": 3}}, "limits: needs `options: {process: true}`: the actions"),
            (
                {"isolation": "trusted", "options": {"env": {"A": "1"}}},
                "options.env: an action in the worker's own process cannot have it",
            ),
            ({"isolation": "container"}, "isolation: expected process or user or trusted, as the"),
            (
                {"isolation": "trusted", "options": {"process": True}},
                "isolation: expected process or user, as a process for each execution gives, found",
            ),
            ({"isolation": "Process"}, "isolation: expected one of trusted, process, user, contai"),
            ({"isolation": 1}, "isolation: expected one of trusted, process, user, container, fou"),
        ],
    )
    def test_a_python_action_has_what_its_isolation_can_give(self, folder, more, expected):
        folder.write("actions.py", "def f(): ...\n")
        folder.action(runtime="python", entry_point="net.actions:f", **more)
        (problem,) = folder.problems()
        assert expected in problem

    @pytest.mark.parametrize(
        ("values", "isolation"),
        [
            ({}, "process"),
            ({"isolation": "user"}, "user"),
            (GET | {"parameters": HOST}, "process"),
            (GET | {"parameters": HOST, "isolation": "trusted"}, "trusted"),
            ({"runtime": "container", "options": {"image": "x"}}, "container"),
        ],
    )
    def test_what_an_action_does_not_say_is_what_its_runtime_gives(self, folder, values, isolation):
        folder.action(**values)
        assert folder.load().actions[0].isolation == isolation

    def test_a_container_has_no_other_isolation(self, folder):
        folder.action(runtime="container", options={"image": "x"}, isolation="process")
        (problem,) = folder.problems()
        assert "isolation: expected container, as the runtime container gives" in problem

    @pytest.mark.parametrize(
        ("allowed", "network", "is_valid"),
        [
            ("", "none", True),
            ("", "bridge", False),
            ("bridge, backend", "backend", True),
            ("bridge", "host", False),
            ("host", "host", True),
            ("bridge", "container:other", False),
            ("bridge,", "", False),
        ],
    )
    def test_a_container_joins_the_networks_that_the_installation_allows(
        self, folder, settings, allowed, network, is_valid
    ):
        settings.MUSTER = replace(settings.MUSTER, container_networks=allowed)
        folder.action(runtime="container", options={"image": "x", "network": network})
        if is_valid:
            assert folder.load().actions[0].runtime_options["network"] == network
        else:
            (problem,) = folder.problems()
            assert "options.network: expected `none`, or a network of MUSTER_CONTAINER_" in problem

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
