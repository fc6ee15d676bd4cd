"""Node actions: offered where there is a node that is new enough."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.workers.helpers import call
from workers import runtimes
from workers.runtimes import node

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(autouse=True)
def _forget():
    node._version.cache_clear()
    yield
    node._version.cache_clear()


@pytest.mark.parametrize(
    ("says", "why_not"),
    [
        (None, "there is no program `node` on PATH"),
        ("v18.0.0", ""),
        ("v22.11.0", ""),
        ("v16.20.2", "its node is v16.20.2, and 18 is the oldest that is supported"),
        ("hello", "`node --version` says 'hello', which is no version"),
    ],
)
def test_it_is_offered_only_with_a_node_that_is_new_enough(tmp_path, monkeypatch, says, why_not):
    monkeypatch.setenv("PATH", f"{tmp_path}")
    if says is not None:
        program = tmp_path / "node"
        program.write_text(f"#!/bin/sh\necho {says}\n")
        program.chmod(0o755)
    assert node.why_not() == why_not


@pytest.fixture
def script(tmp_path: Path):
    def write(text: str, *arguments: str, **values) -> runtimes.Outcome:
        (tmp_path / "script.js").write_text(text)
        asked = call("node", ["script.js", *arguments], pack_path=str(tmp_path), **values)
        return runtimes.run(asked)

    return write


@needs_node
def test_parameters_come_on_stdin_and_the_last_line_is_the_result(script):
    outcome = script(
        'const p = JSON.parse(require("fs").readFileSync(0, "utf8"));'
        'console.log("working"); console.error("careful");'
        "console.log(JSON.stringify({double: p.n * 2}));",
        parameters={"n": 21},
    )
    assert outcome.event == "complete"
    result = outcome.result
    assert (result["result"], result["exit_code"]) == ({"double": 42}, 0)
    assert (result["stdout"], result["stderr"]) == ('working\n{"double":42}\n', "careful\n")
    assert result["duration_seconds"] > 0
    assert result["peak_memory_bytes"] > 10_000_000


@needs_node
def test_parameters_come_as_arguments_where_the_entry_point_names_them(script):
    outcome = script(
        "console.log(JSON.stringify(process.argv.slice(2)))",
        "--name={name}",
        "{list}",
        parameters={"name": "a b", "list": ["x", "y"]},
    )
    assert outcome.result["result"] == ["--name=a b", "x", "y"]


@needs_node
def test_an_exception_fails_with_what_node_says_of_it(script):
    outcome = script('throw new Error("no such luck")')
    assert (outcome.event, outcome.result["exit_code"]) == ("fail", 1)
    assert "no such luck" in outcome.result["stderr"]


@needs_node
def test_more_memory_than_it_may_use_ends_it(script):
    outcome = script(
        "const all = []; for (;;) all.push(Buffer.alloc(10_000_000, 1));",
        limits={"memory_mb": 300},
    )
    assert outcome.reason == "memory_limit_exceeded"
