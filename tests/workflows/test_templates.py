"""Task templates: every key does what it says, and what is wrong is told with its place."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.core import executions, packs
from orchestrator.core.expressions import language
from orchestrator.workflows import task_templates
from orchestrator.workflows.models import TaskTemplate
from orchestrator.workflows.task_templates import (
    InvalidTemplate,
    TemplateDefinition,
    checking,
)
from orchestrator.workflows.task_templates.definitions import Lifecycle
from tests.factories import NOW, make_action, make_task
from tests.workflows.play import step, template

EXAMPLES = Path(__file__).resolve().parents[2] / "packs" / "examples"


def problems(text: str, tmp_path: Path) -> list[str]:
    """What is wrong with a file of this text, as people read it, without the folder."""
    file = tmp_path / "t.yaml"
    file.write_text(text)
    with pytest.raises(InvalidTemplate) as raised:
        task_templates.load_template(file)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in raised.value.problems]


HEAD = "name: tidy\nnamespace_name: tests\nversion: 1.0.0\n"


def test_every_problem_is_told_at_once_with_its_line_and_the_nearest_key(tmp_path: Path) -> None:
    text = """\
name: Tidy
namespace_name: a-name-that-is-longer-than-it-may-be
version: "1.0"
lifecicle: {}
lifecycle:
  max_duration_minute: 3
  staleness_action: page
steps:
  - name: wash
    type: standart
    action: core.echo
    dependency: [dry]
    retry: {max_atempts: 3, max_attempts: 101, backoff: sometimes}
    timeout_seconds: 0
  - name: dry
    dependencies: [wahs]
"""
    assert problems(text, tmp_path) == [
        "t.yaml:1:7: name: expected at most 60 of a-z, 0-9, _ and -, found 'Tidy'",
        "t.yaml:2:17: namespace_name: expected at most 29 of a-z, 0-9, _ and -, found "
        "'a-name-that-is-longer-than-it-may-be'",
        "t.yaml:3:10: version: expected a semantic version, such as 1.0.0, found '1.0'",
        "t.yaml:4:1: lifecicle: unknown key, did you mean 'lifecycle'?",
        "t.yaml:6:3: lifecycle.max_duration_minute: unknown key, did you mean "
        "'max_duration_minutes'?",
        "t.yaml:7:21: lifecycle.staleness_action: expected one of dlq, error, none, found 'page'",
        "t.yaml:10:11: steps.0.type: expected one of standard, decision, deferred, batchable, "
        "batch_worker, inquiry, found 'standart'",
        "t.yaml:12:5: steps.0.dependency: unknown key, did you mean 'dependencies'?",
        "t.yaml:13:13: steps.0.retry.max_atempts: unknown key, did you mean 'max_attempts'?",
        "t.yaml:13:43: steps.0.retry.max_attempts: expected a whole number from 1 to 100, "
        "found 101",
        "t.yaml:13:57: steps.0.retry.backoff: expected one of none, linear, exponential, "
        "fibonacci, found 'sometimes'",
        "t.yaml:14:22: steps.0.timeout_seconds: expected a number above 0, at most 604,800 "
        "(seven days), found 0",
        "t.yaml:15:5: steps.1: expected action or handler, found neither",
        "t.yaml:16:20: steps.1.dependencies.0: no step is called 'wahs', did you mean 'wash'?",
    ]


def test_cycle_is_refused_by_its_name(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
steps:
  - {name: a, action: core.noop, dependencies: [c]}
  - {name: b, action: core.noop, dependencies: [a]}
  - {name: c, action: core.noop, depends_on: [b]}
"""
    )
    (problem,) = problems(text, tmp_path)
    cycles = ["a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"]
    assert any(problem.endswith(f"in a cycle: {cycle}") for cycle in cycles), problem


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([step("a", "a")], "steps.0.dependencies.0: 'a' cannot depend on itself"),
        ([step("a"), step("b", "a", "a")], "steps.1.dependencies.1: 'a' is given twice"),
        ([step("a"), step("a")], "found 'a', as steps.0"),
        ([step("a", depends_on=[])], "dependencies are given already"),
        ([step("a", handler="core.x")], "expected action or handler, found both"),
        ([step("a", type="decision")], "a decision needs steps that depend on it"),
        ([step("a", type="deferred")], "a deferred step needs dependencies"),
        ([step("a", type="batchable")], "a batchable step needs one batch worker"),
        ([step("a", type="batch_worker")], "a batch worker needs one batchable step"),
        ([step("a", batch={"batch_size": 3})], "only a batchable step has it"),
        (
            [step("p", type="batchable"), step("w", "p", type="batch_worker"), step("w_001")],
            "'w_001' is what a worker of the batch is called",
        ),
        (
            [step("a", parameters={"x": "{{ steps.b.result }}"}), step("b")],
            "'a' does not depend on 'b'",
        ),
        (
            [step("a", parameters={"x": ["{{ task.x | uper }}"]})],
            "parameters.x.0: uper: unknown filter",
        ),
        ([step("a", when="{{ batch.start }}")], "only a batch worker has it"),
        ([step("a", when="{{ task.x }} and text")], "expected one expression"),
        ([step("a", parameters={"x": "{{ 2 ** 9 }}"})], "pow is not allowed"),
        ([step("a", result_schema={"type": "objekt"})], "steps.0.result_schema.type: expected"),
        ([step("a", retry={"retryable": 1})], "steps.0.retry.retryable: expected true or false"),
        ("a", "steps: expected a list of at most 5,000 steps"),
        ([{"name": "a", "action": "echo"}], "expected an action's ref, as pack.name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_template_from_json_is_told(steps: Any, told: str) -> None:
    with pytest.raises(InvalidTemplate) as raised:
        task_templates.template_from_values(
            {"name": "t", "namespace_name": "n", "version": "1.0.0", "steps": (
                [{"action": "core.echo"} | each if "handler" not in each or told.endswith("both")
                 else each for each in steps] if isinstance(steps, list) else steps)}
        )  # fmt: skip
    assert any(told in str(problem) for problem in raised.value.problems), raised.value


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"steps": {"wsh": {}}}, "environments.x.steps.wsh: no step is called 'wsh', did you mean"),
        ({"steps": {"wash": {"name": "b"}}}, "environments.x.steps.wash.name: unknown key"),
        ({"step": {}}, "environments.x.step: unknown key, did you mean 'steps'?"),
        ({"lifecycle": {"max": 1}}, "environments.x.lifecycle.max: unknown key"),
        (
            {"steps": {"wash": {"parameters": {"x": "{{ foo }}"}}}},
            "environments.x.steps.wash.parameters.x: expected task, steps, batch",
        ),
        ({"steps": {"wash": {"retry": {"max_attempts": 0}}}}, "retry.max_attempts: expected"),
    ],
)
def test_what_is_wrong_with_an_override_is_told(overrides: Any, told: str) -> None:
    with pytest.raises(InvalidTemplate) as raised:
        template(step("wash"), environments={"x": overrides})
    assert any(told in str(problem) for problem in raised.value.problems), raised.value


def test_definition_has_the_defaults_that_are_promised() -> None:
    definition = TemplateDefinition.of(template(step("a")))
    only = definition.steps["a"]
    assert (only.kind, only.parents, only.when, only.timeout_seconds) == (
        "standard",
        (),
        True,
        None,
    )
    assert (only.retry.retryable, only.retry.max_attempts) == (True, 3)
    delays = [only.retry.delay(attempts) for attempts in (1, 2, 3, 4, 5, 6, 100)]
    assert [delay.total_seconds() for delay in delays] == [1, 2, 4, 8, 16, 30, 30]
    assert definition.lifecycle == Lifecycle()
    assert (definition.lifecycle.staleness_action, definition.lifecycle.auto_fail_on_timeout) == (
        "dlq", True,
    )  # fmt: skip


def test_handler_and_depends_on_are_other_names_of_action_and_dependencies() -> None:
    values = task_templates.template_from_values(
        {
            "name": "t", "namespace_name": "n", "version": "1.0.0-rc.1+build",
            "steps": [
                {"name": "a", "handler": "core.noop"},
                {"name": "b", "action": "core.echo", "depends_on": ["a"]},
            ],
        }
    )  # fmt: skip
    definition = TemplateDefinition.of(values)
    assert definition.steps["a"].action_ref == "core.noop"
    assert definition.steps["b"].parents == ("a",)


def test_environment_overrides_what_it_names_and_nothing_else() -> None:
    values = template(
        step("a", parameters={"x": 1, "y": 2}, retry={"max_attempts": 5, "backoff": "linear"}),
        step("b", timeout_seconds=9),
        lifecycle={"max_duration_minutes": 60, "staleness_action": "error"},
        metadata={"team": "ops", "tier": 1},
        environments={
            "test": {
                "lifecycle": {"max_duration_minutes": 1},
                "metadata": {"tier": 9},
                "steps": {
                    "a": {
                        "parameters": {"y": 3}, "retry": {"max_attempts": 1}, "handler": "core.x",
                        "when": False, "timeout_seconds": 4,
                    }
                },
            }
        },
    )  # fmt: skip
    usual, test = (TemplateDefinition.of(values, environment=name) for name in ("", "test"))
    assert test.steps["b"] == usual.steps["b"]
    a = test.steps["a"]
    assert (a.parameters, a.action_ref, a.when, a.timeout_seconds) == (
        {"x": 1, "y": 3}, "core.x", False, 4,
    )  # fmt: skip
    assert (a.retry.max_attempts, a.retry.backoff) == (1, "linear")
    assert usual.steps["a"].retry.max_attempts == 5
    assert (test.lifecycle.max_duration_minutes, test.lifecycle.staleness_action) == (1, "error")
    assert (usual.lifecycle.max_duration_minutes, usual.metadata["tier"]) == (60, 1)
    assert test.metadata == {"team": "ops", "tier": 9}
    assert TemplateDefinition.of(values, environment="unheard of") == usual


# --- installing ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
class TestInstalling:
    def test_versions_stand_side_by_side_and_the_same_again_changes_nothing(self) -> None:
        make_action()
        first, second = template(step("a")), template(step("a"), version="1.1.0")
        report = task_templates.install_templates([first, second], now=NOW)
        assert report.created == ("tests/tidy/1.0.0", "tests/tidy/1.1.0")
        assert task_templates.install_templates([first], now=NOW).unchanged == ("tests/tidy/1.0.0",)
        assert TaskTemplate.objects.count() == 2

    def test_version_may_change_until_a_task_has_run_it(self) -> None:
        make_action()
        task_templates.install_templates([template(step("a"))], now=NOW)
        later = NOW + timedelta(hours=1)
        assert task_templates.install_templates([template(step("b"))], now=later).updated
        installed = TaskTemplate.objects.get()
        assert installed.definition["steps"][0]["name"] == "b"
        make_task(template=installed)
        assert task_templates.install_templates([template(step("b"))], now=later).unchanged
        with pytest.raises(
            task_templates.TemplateInUse, match=r"tests/tidy/1\.0\.0 .* raise its version"
        ):
            task_templates.install_templates([template(step("c"))], now=later)

    def test_action_that_is_not_installed_is_named_with_its_step_and_the_nearest(self) -> None:
        make_action()
        with pytest.raises(task_templates.UnknownAction, match="step a: no action is called"):
            task_templates.install_templates([template(step("a", action="core.ecko"))], now=NOW)
        assert not TaskTemplate.objects.exists()

    def test_pack_brings_its_templates_and_takes_them_away(self, tmp_path: Path) -> None:
        folder = tmp_path / "odds"
        (folder / "templates").mkdir(parents=True)
        (folder / "pack.yaml").write_text('name: odds\nversion: "1"\n')
        file = folder / "templates" / "tidy.yaml"
        file.write_text(yaml.safe_dump(template(step("a"))))
        make_action()
        report = packs.install(packs.load(folder), now=NOW)
        assert report.created == ("tests/tidy/1.0.0",)
        with pytest.raises(task_templates.TemplateTaken, match="belongs to odds"):
            task_templates.install_templates([template(step("a"))], now=NOW)
        file.unlink()
        assert packs.install(packs.load(folder), now=NOW).disabled == ("tests/tidy/1.0.0",)
        assert not TaskTemplate.objects.get().enabled

    def test_examples_are_installed(self) -> None:
        packs.install(packs.load(EXAMPLES.parent / "core"), now=NOW)
        report = packs.install(packs.load(EXAMPLES), now=NOW)
        templates = [ref for ref in report.created if ref.startswith("examples/")]
        assert templates == [f"examples/{name}/1.0.0" for name in (
            "approval", "diamond", "linear", "order_fulfilment", "rows", "slow",
        )]  # fmt: skip


def test_pack_names_the_file_and_line_of_what_is_wrong_in_a_template(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "pack.yaml").write_text('name: odds\nversion: "1"\n')
    (tmp_path / "templates" / "a.yaml").write_text(HEAD + "steps:\n  - name: a\n    actoin: x.y\n")
    (tmp_path / "templates" / "b.yml").write_text("")
    (tmp_path / "templates" / "c.yaml").write_text(HEAD + "steps: []\n")
    (tmp_path / "templates" / "d.yaml").write_text(HEAD + "steps: []\n")
    with pytest.raises(packs.InvalidPack) as raised:
        packs.load(tmp_path)
    told = [str(problem).replace(f"{tmp_path}/templates/", "") for problem in raised.value.problems]
    assert told[:2] == [
        "a.yaml:5:5: steps.0: expected action or handler, found neither",
        "a.yaml:6:5: steps.0.actoin: unknown key, did you mean 'action'?",
    ]
    assert told[2] == "b.yml: expected a name that ends in .yaml, found .yml"
    assert "found 'tests/tidy/1.0.0', as in a.yaml:1" in told[3]
    assert "d.yaml:1:1" in told[4]


MINUTES = [name for name in checking.LIFECYCLE_KEYS if name.endswith("_minutes")]


@pytest.mark.parametrize("name", MINUTES)
@pytest.mark.parametrize("environments", [False, True])
def test_limit_that_no_timestamp_can_hold_is_refused(name: str, environments: bool) -> None:
    def told(minutes: Any) -> list[str]:
        values: dict[str, Any] = {"lifecycle": {name: minutes}}
        if environments:
            values = {"environments": {"test": values}}
        try:
            template(step("a"), **values)
        except InvalidTemplate as invalid:
            return [problem.message for problem in invalid.problems]
        return []

    where = f"{'environments.test.' if environments else ''}lifecycle.{name}"
    for minutes in (5_256_001, 9_999_999_999, 10**300, 0, 1e-310, "5"):
        (message,) = told(minutes)
        assert message.startswith(f"{where}: expected a number from 0.001 to 5,256,000 (ten years)")
    assert len(MINUTES) == 4
    assert told(0.001) == told(5_256_000) == []


def test_time_limit_of_a_step_has_the_bound_of_requests() -> None:
    longest = executions.BOUNDS["timeout_seconds"][1]
    template(
        step("a", timeout_seconds=longest),
        environments={"test": {"steps": {"a": {"timeout_seconds": longest}}}},
    )
    for values in (
        {"steps": [step("a", action="core.echo", timeout_seconds=longest + 1)]},
        {"environments": {"test": {"steps": {"a": {"timeout_seconds": longest + 1}}}}},
    ):
        with pytest.raises(InvalidTemplate, match="timeout_seconds: expected a number above 0, at"):
            template(step("a"), **values)


def test_every_key_of_a_template_is_in_the_documentation() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "workflows.md").read_text()
    keys = {
        *checking.TEMPLATE_KEYS, *checking.STEP_KEYS, *checking.RETRY_KEYS,
        *checking.BATCH_KEYS, *checking.LIFECYCLE_KEYS, *checking.ENVIRONMENT_KEYS,
        *language.environment.filters,
    }  # fmt: skip
    assert {key for key in keys if f"`{key}`" not in page and f"`{key}(" not in page} == set()
