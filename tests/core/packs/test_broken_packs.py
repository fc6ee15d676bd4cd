"""Each problem of a broken pack is reported with its file and its line."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command

PING = 'name: ping\nruntime: shell\nentry_point: [ping, "-c1"]\n'
PYTHON = "name: say\nruntime: python\n"
RULE = "name: r\ntrigger: {type: net.changed}\naction:\n  ref: net.ping\n  parameters: {}\n"
TYPE = "name: changed\npayload_schema: {properties: {host: {type: string}}}\n"
TEMPLATE = (
    "name: t\nnamespace_name: net\nversion: 1.0.0\nsteps:\n  - name: one\n    action: net.ping\n"
)

BROKEN: dict[str, tuple[dict[str, str], list[str]]] = {
    "name": ({"pack.yaml": 'version: "1"\nname: No Good\n'}, ["pack.yaml:2:7: name: expected"]),
    "version": ({"pack.yaml": "name: net\nversion: 1.0\n"}, ["pack.yaml:2:10: version: expected"]),
    "unknown key": (
        {"pack.yaml": 'name: net\nversion: "1"\nversoin: "2"\n'},
        ["pack.yaml:3:1: versoin: unknown key, did you mean 'version'?"],
    ),
    "no yaml": ({"actions/a.yaml": "name: a\nruntime: [\n"}, ["actions/a.yaml:3:1: not YAML"]),
    "key twice": ({"actions/a.yaml": PING + "name: b\n"}, ["actions/a.yaml:4:1:"]),
    "runtime": (
        {"actions/a.yaml": "name: a\nruntime: perl\nentry_point: [a]\n"},
        ["actions/a.yaml:2:10: runtime: expected"],
    ),
    "no entry point": (
        {"actions/a.yaml": "name: a\nruntime: shell\n"},
        ["actions/a.yaml:1:1: entry_point: missing key"],
    ),
    "module": (
        {"actions/say.yaml": PYTHON + "entry_point: net.nowhere:say\n"},
        ["actions/say.yaml:3:14: entry_point: expected the module in nowhere.py"],
    ),
    "function": (
        {
            "work.py": "def other(): ...\n",
            "actions/say.yaml": PYTHON + "entry_point: net.work:say\n",
        },
        ["actions/say.yaml:3:14: entry_point: work.py: expected a function 'say', found none"],
    ),
    "module that is no python": (
        {
            "work.py": "def say(:\n",
            "actions/say.yaml": PYTHON + "entry_point: net.work:say\n",
        },
        ["actions/say.yaml:3:14: entry_point: work.py: not Python"],
    ),
    "placeholder": (
        {"actions/a.yaml": 'name: a\nruntime: shell\nentry_point:\n  - ping\n  - "{host}"\n'},
        ["actions/a.yaml:5:5: entry_point: {host}: expected one of the parameters"],
    ),
    "schema": (
        {"actions/a.yaml": PING + "parameters:\n  properties:\n    n: {type: text}\n"},
        ["actions/a.yaml:6:15: parameters.properties.n.type: expected"],
    ),
    "two numbers": (
        {"actions/a.yaml": PING + "timeout_seconds: 0\nqueue_ttl_ms: -1\n"},
        ["actions/a.yaml:4:18: timeout_seconds", "actions/a.yaml:5:15: queue_ttl_ms"],
    ),
    "retry": (
        {"actions/a.yaml": PING + "retry:\n  max_attempts: none\n"},
        ["actions/a.yaml:5:17: retry.max_attempts"],
    ),
    "same name": (
        {"actions/a.yaml": PING, "actions/b.yaml": "\n" + PING},
        ["actions/b.yaml:2:1: name: expected a name of its own"],
    ),
    "isolation": (
        {"actions/a.yaml": PING + "isolation: trusted\n"},
        ["actions/a.yaml:4:12: isolation: expected process or user"],
    ),
    "unknown action of a rule": (
        {
            "actions/a.yaml": PING,
            "triggers/c.yaml": TYPE,
            "rules/r.yaml": RULE.replace("net.ping", "net.pong"),
        },
        ["rules/r.yaml:4:8: action.ref"],
    ),
    "criteria": (
        {
            "actions/a.yaml": PING,
            "triggers/c.yaml": TYPE,
            "rules/r.yaml": RULE + "criteria:\n  trigger.host: {type: like, pattern: web}\n",
        },
        ["rules/r.yaml:7:24: criteria['trigger.host'].type"],
    ),
    "trigger type": (
        {"triggers/c.yaml": "name: changed\npayload_schema:\n  type: text\n"},
        ["triggers/c.yaml:3:9: payload_schema.type"],
    ),
    "template": (
        {
            "actions/a.yaml": PING,
            "templates/t.yaml": TEMPLATE
            + "    dependencies: [two]\n    retry: {max_attempts: 0}\n",
        },
        ["templates/t.yaml:7:", "templates/t.yaml:8:"],
    ),
    "ending": ({"actions/a.yml": PING}, ["actions/a.yml: expected a name that ends in .yaml"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_every_problem_is_told_with_its_file_and_line(folder: Any, what: str) -> None:
    files, expected = BROKEN[what]
    for name, text in files.items():
        folder.write(name, text)
    stderr = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("pack", "validate", str(folder.path), stderr=stderr)
    *problems, summary = stderr.getvalue().splitlines()
    found = [problem.removeprefix(f"{folder.path}/") for problem in problems]
    for place in expected:
        assert any(problem.startswith(place) for problem in found), found
    assert len(found) == len(expected), found
    assert summary.endswith("nothing was changed.")


def test_all_problems_of_all_files_are_told_at_once(folder: Any) -> None:
    folder.write("pack.yaml", 'name: net\nversion: "1"\nversoin: "2"\n')
    folder.write("actions/a.yaml", PING + "timeout_seconds: 0\nqueue_ttl_ms: -1\n")
    folder.write("triggers/c.yaml", "name: changed\npayload_schema:\n  type: text\n")
    stderr = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("pack", "validate", str(folder.path), stderr=stderr)
    assert stderr.getvalue().splitlines()[-1] == "4 problems; nothing was changed."
