"""Checks of task templates. Every problem is reported, not only the first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.core import expressions, key_references, spelling
from orchestrator.core.errors import MusterError
from orchestrator.core.json_values import is_number, is_whole
from orchestrator.core.packs import parameters, source
from orchestrator.core.packs.keys import (
    MAPPING,
    QUEUE,
    TEXT,
    TIMEOUT,
    WHOLE_NUMBER,
    YES_OR_NO,
    Key,
    check,
    is_name,
    one_of,
)
from orchestrator.core.packs.source import Source, SourceProblem, Where
from orchestrator.core.retry_policy import BACKOFFS
from orchestrator.inquiries import questions
from orchestrator.workflows import dag
from orchestrator.workflows.models.staleness import LEAST_MINUTES, MOST_MINUTES
from orchestrator.workflows.task_templates.definitions import (
    ASKING,
    BATCH_WORKER,
    BATCHABLE,
    DECISION,
    DEFERRED,
    EXPRESSION_NAMES,
    FAILURE_STRATEGIES,
    IDENTITY_STRATEGIES,
    INQUIRY,
    KINDS,
    ON_NO_WORKER,
    RELEASES,
    STALENESS_ACTIONS,
    STANDARD,
    asked,
)

NAME = re.compile(r"[a-z0-9_-]+")
STEP_NAME = re.compile(r"[a-z][a-z0-9_]*")
WORKER_NAME = re.compile(r"(?P<name>.+)_[0-9]{3,}")
ACTION_REF = re.compile(r"[a-z0-9_-]+\.[a-z0-9_.-]+")
# https://semver.org, the expression that it suggests
VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
STEP_LIMIT = 5_000
MAX_ATTEMPTS = 100


class InvalidTemplate(MusterError):
    """The template has problems, and nothing of it was installed."""

    def __init__(self, problems: list[SourceProblem]) -> None:
        self.problems = sorted(set(problems), key=lambda p: (p.file, p.line, p.column, p.message))
        super().__init__("\n".join(map(str, self.problems)))


def load_template(path: Path | str) -> dict[str, Any]:
    """Read one template's file. Raises InvalidTemplate."""
    file = source.read(Path(path))
    check_template(file)
    if file.problems:
        raise InvalidTemplate(file.problems)
    return dict(file.value)


def template_from_values(values: Any) -> dict[str, Any]:
    """Check a template that came as JSON. Raises InvalidTemplate, whose problems have no lines."""
    file = Source(Path("template"), value=values)
    check_template(file)
    if file.problems:
        raise InvalidTemplate(file.problems)
    return dict(values)


def check_template(file: Source) -> None:
    """Note all problems with the template in this file."""
    if not check(file, TEMPLATE_KEYS):
        return
    _check_schema(file, ("input_schema",))
    if isinstance(file.value.get("lifecycle"), dict):
        check(file, LIFECYCLE_KEYS, ("lifecycle",))
    if not isinstance(file.value.get("steps"), list):
        return
    for index, step in enumerate(file.value["steps"]):
        _check_step(file, ("steps", index), step)
    if not _check_names(file):
        return
    parents = _graph(file)
    _check_cycle(file, parents)
    for index, step in enumerate(file.value["steps"]):
        _check_kind(file, ("steps", index), step)
        _check_expressions(file, ("steps", index), step, step["name"], parents)
    _check_environments(file, parents)


# --- one step ------------------------------------------------------------------------------------


def _check_step(file: Source, where: Where, step: Any) -> None:
    if not check(file, STEP_KEYS, where):
        return
    if step.get("type") == INQUIRY:
        _check_question(file, where, step)
    elif ("action" in step) == ("handler" in step):
        given = "both" if "action" in step else "neither"
        file.problem(where, f"{_at(where)}: expected action or handler, found {given}")
    if "dependencies" in step and "depends_on" in step:
        file.problem(
            (*where, "depends_on"), f"{_at(where)}.depends_on: dependencies are given already"
        )
    _check_schema(file, (*where, "result_schema"))
    _check_parts(file, where, step)


def _check_question(file: Source, where: Where, step: Mapping[str, Any]) -> None:
    """Check what a step asks people. What has an expression in it is checked when it is asked."""
    for name in sorted({"action", "handler", "parameters", "queue"} & step.keys()):
        message = f"{_at(where)}.{name}: a step that asks people has none"
        file.problem((*where, name), message, at_key=True)
    question = asked(step)
    if questions.WAIT_FOR in question:
        for name in sorted(question.keys() - {questions.WAIT_FOR}):
            message = f"{_at(where)}.{name}: expected none beside wait_for"
            file.problem((*where, name), message, at_key=True)
        return
    for path, message in questions.problems(question):
        place = (*where, *path)
        if not any(True for _ in expressions.texts(file.at(place))):
            file.problem(place, f"{_at(place)}: {message}")


def _check_parts(file: Source, where: Where, step: Mapping[str, Any]) -> None:
    for name, keys in (("retry", RETRY_KEYS), ("batch", BATCH_KEYS)):
        if isinstance(step.get(name), dict):
            check(file, keys, (*where, name))


def _check_schema(file: Source, where: Where) -> None:
    schema = file.at(where)
    if isinstance(schema, dict):
        for problem in parameters.schema_problems(schema):
            place = (*where, *problem.where)
            file.problem(place, f"{_at(place)}: {problem.message}")


def _check_kind(file: Source, where: Where, step: Mapping[str, Any]) -> None:
    """Check what a kind of step needs around it."""
    steps = {each["name"]: each for each in file.value["steps"]}
    kind, name = step.get("type", STANDARD), step["name"]
    parents = [steps[p].get("type", STANDARD) for p in _parents(step) if p in steps]
    children = [each for each in steps.values() if name in _parents(each)]
    needs = ""
    if kind == DECISION and not children:
        needs = "a decision needs steps that depend on it: these it can create"
    elif kind == DEFERRED and not parents:
        needs = "a deferred step needs dependencies to wait for"
    elif kind == BATCH_WORKER and parents.count(BATCHABLE) != 1:
        needs = "a batch worker needs one batchable step among its dependencies"
    elif kind == BATCHABLE:
        workers = [each for each in children if each.get("type") == BATCH_WORKER]
        if len(workers) != 1:
            needs = (
                f"a batchable step needs one batch worker that depends on it, not {len(workers)}"
            )
    elif kind != INQUIRY:
        for key in sorted(asked(step)):
            message = f"{_at(where)}.{key}: only a step with `type: inquiry` has it"
            file.problem((*where, key), message, at_key=True)
    if needs:
        file.problem((*where, "type"), f"{_at(where)}: {needs}")
    if "batch" in step and kind != BATCHABLE:
        file.problem(
            (*where, "batch"), f"{_at(where)}.batch: only a batchable step has it", at_key=True
        )


# --- the graph -----------------------------------------------------------------------------------


def _check_names(file: Source) -> bool:
    """Return True if every step has a unique name; the other checks need that."""
    first: dict[str, int] = {}
    sound = True
    for index, step in enumerate(file.value["steps"]):
        name = step.get("name") if isinstance(step, dict) else None
        if not isinstance(name, str) or not _are_texts(_parents(step)):
            sound = False
            continue
        place: Where = ("steps", index, "name")
        if name in first:
            line = file.line(("steps", first[name], "name"))
            other = f"in line {line}" if line else f"steps.{first[name]}"
            file.problem(
                place, f"{_at(place)}: expected a name of its own, found {name!r}, as {other}"
            )
            sound = False
        first.setdefault(name, index)
    workers = {
        step["name"]
        for step in file.value["steps"]
        if isinstance(step, dict) and step.get("type") == BATCH_WORKER and "name" in step
    }
    for name, index in first.items():
        if (match := WORKER_NAME.fullmatch(name)) and match["name"] in workers:
            place = ("steps", index, "name")
            file.problem(place, f"{_at(place)}: {name!r} is what a worker of the batch is called")
    return sound


def _graph(file: Source) -> dict[str, list[str]]:
    """Return each step's existing dependencies, and note the problems with them."""
    names = [step["name"] for step in file.value["steps"]]
    graph: dict[str, list[str]] = {}
    for index, step in enumerate(file.value["steps"]):
        key = "dependencies" if "dependencies" in step else "depends_on"
        graph[step["name"]] = []
        for position, parent in enumerate(_parents(step)):
            place: Where = ("steps", index, key, position)
            if parent == step["name"]:
                file.problem(place, f"{_at(place)}: {parent!r} cannot depend on itself")
            elif parent in graph[step["name"]]:
                file.problem(place, f"{_at(place)}: {parent!r} is given twice")
            elif parent not in names:
                near = spelling.near(parent, names)
                hint = f", did you mean {near!r}?" if near else ""
                file.problem(place, f"{_at(place)}: no step is called {parent!r}{hint}")
            else:
                graph[step["name"]].append(parent)
    return graph


def _check_cycle(file: Source, parents: Mapping[str, list[str]]) -> None:
    if cycle := dag.cycle(parents):
        names = [step["name"] for step in file.value["steps"]]
        file.problem(
            ("steps", names.index(cycle[0])),
            f"steps: the steps depend on each other in a cycle: {dag.described(cycle)}",
        )


def _parents(step: Any) -> list[Any]:
    if not isinstance(step, dict):
        return []
    names = step.get("dependencies", step.get("depends_on", []))
    return names if isinstance(names, list) else []


# --- expressions ---------------------------------------------------------------------------------


def _check_expressions(
    file: Source, where: Where, step: Mapping[str, Any], name: str, parents: dag.Parents
) -> None:
    """Check the syntax, and that an expression uses only steps that are over when its step
    begins."""
    _check_references(file, (*where, "parameters"))
    expressions_of_step = [
        (("parameters", *place), text, False)
        for place, text in expressions.texts(step.get("parameters"))
    ]
    expressions_of_step += [(place, text, False) for place, text in expressions.texts(asked(step))]
    if isinstance(step.get("when"), str):
        expressions_of_step.append((("when",), step["when"], True))
    if not expressions_of_step:
        return
    above = dag.ancestors(parents, name)
    kinds = {each["name"]: each.get("type") for each in file.value["steps"]}
    for place, text, bare in expressions_of_step:
        place = (*where, *place)
        try:
            expression = expressions.read(text, names=EXPRESSION_NAMES, bare=bare)
        except expressions.InvalidExpression as error:
            file.problem(place, f"{_at(place)}: {error}")
            continue
        for other in sorted(expression.steps - above):
            near = spelling.near(other, above)
            hint = f", did you mean {near!r}?" if near and other not in parents else ""
            what = f"does not depend on {other!r}" if other in parents else f"there is no {other!r}"
            file.problem(place, f"{_at(place)}: steps.{other}: {name!r} {what}{hint}")
        if "batch" in expression.names and kinds[name] != BATCH_WORKER:
            file.problem(place, f"{_at(place)}: batch: only a batch worker has it")


def _check_references(file: Source, where: Where) -> None:
    """Check references to keys that are written as parameters have them."""
    parameters = file.at(where)
    for path, message in key_references.faults(parameters):
        place = (*where, *path)
        file.problem(place, f"{_at(place)}: {message}")
    for path, text in expressions.texts(parameters):
        if key_references.TEXT in path:
            place = (*where, *path)
            file.problem(place, f"{_at(place)}: expected plain text here, found {text!r:.60}")


# --- environments --------------------------------------------------------------------------------


def _check_environments(file: Source, parents: dag.Parents) -> None:
    environments = file.value.get("environments")
    kinds = {each["name"]: each.get("type") for each in file.value["steps"]}
    if not isinstance(environments, dict):
        return
    for environment, overrides in environments.items():
        where: Where = ("environments", environment)
        if not is_name(environment, NAME):
            file.problem(where, f"{_at(where)}: expected a name of a-z, 0-9, _ and -", at_key=True)
        if not check(file, ENVIRONMENT_KEYS, where):
            continue
        if isinstance(overrides.get("lifecycle"), dict):
            check(file, LIFECYCLE_KEYS, (*where, "lifecycle"))
        steps = overrides.get("steps")
        for name, step in steps.items() if isinstance(steps, dict) else ():
            place = (*where, "steps", name)
            if name not in parents:
                near = spelling.near(name, parents)
                hint = f", did you mean {near!r}?" if near else ""
                file.problem(place, f"{_at(place)}: no step is called {name!r}{hint}", at_key=True)
            elif check(file, OVERRIDE_KEYS, place):
                if kinds.get(name) == INQUIRY and {"action", "handler", "parameters"} & step.keys():
                    message = f"{_at(place)}: {name!r} asks people: it runs no action of its own"
                    file.problem(place, message)
                if "action" in step and "handler" in step:
                    file.problem(place, f"{_at(place)}: expected action or handler, found both")
                _check_parts(file, place, step)
                _check_expressions(file, place, step, name, parents)


def _at(where: Where) -> str:
    return ".".join(map(str, where))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _numbers(low: int, high: int) -> Key:
    def fits(value: Any) -> bool:
        return is_whole(value) and low <= value <= high

    return Key(f"a whole number from {low} to {high:,}", fits)


def _is_steps(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= STEP_LIMIT


def _named(pattern: re.Pattern[str], longest: int, expected: str) -> Key:
    def fits(value: Any) -> bool:
        return is_name(value, pattern) and len(value) <= longest

    return Key(f"at most {longest} of {expected}", fits, required=True)


REF = Key(
    "an action's ref, as pack.name",
    lambda value: (
        isinstance(value, str) and len(value) <= 130 and bool(ACTION_REF.fullmatch(value))
    ),
)
NAMES = Key("a list of names of steps", _are_texts)
MINUTES = Key(
    f"a number from {LEAST_MINUTES:g} to {MOST_MINUTES:,} (ten years)",
    lambda value: is_number(value) and LEAST_MINUTES <= value <= MOST_MINUTES,
)
SCHEMA = Key("a JSON Schema", lambda value: isinstance(value, dict))
CONDITION = Key("an expression, true or false", lambda value: isinstance(value, str | bool))

TEMPLATE_KEYS: Mapping[str, Key] = {
    "name": _named(NAME, 60, "a-z, 0-9, _ and -"),
    "namespace_name": _named(NAME, 29, "a-z, 0-9, _ and -"),
    "version": Key(
        "a semantic version, such as 1.0.0",
        lambda value: (
            isinstance(value, str) and len(value) <= 40 and bool(VERSION.fullmatch(value))
        ),
        required=True,
    ),
    "description": TEXT,
    "identity_strategy": one_of(*IDENTITY_STRATEGIES),
    "input_schema": SCHEMA,
    "steps": Key(f"a list of at most {STEP_LIMIT:,} steps", _is_steps, required=True),
    "release": one_of(*RELEASES),
    "lifecycle": MAPPING,
    "environments": MAPPING,
    "metadata": MAPPING,
}

OVERRIDE_KEYS: Mapping[str, Key] = {
    "action": REF,
    "handler": REF,
    "parameters": MAPPING,
    "retry": MAPPING,
    "timeout_seconds": TIMEOUT,
    "queue": QUEUE,
    "when": CONDITION,
    "batch": MAPPING,
}

ANYTHING = Key("anything", lambda value: True)

STEP_KEYS: Mapping[str, Key] = {
    **dict.fromkeys(ASKING, ANYTHING),  # `questions` checks them
    "name": _named(STEP_NAME, 60, "a-z, 0-9 and _, a letter first"),
    "type": one_of(*KINDS),
    "dependencies": NAMES,
    "depends_on": NAMES,
    "result_schema": SCHEMA,
    **OVERRIDE_KEYS,
}

RETRY_KEYS: Mapping[str, Key] = {
    "retryable": YES_OR_NO,
    "max_attempts": _numbers(1, MAX_ATTEMPTS),
    "backoff": one_of(*BACKOFFS),
    "backoff_base_ms": WHOLE_NUMBER,
    "max_backoff_ms": WHOLE_NUMBER,
}

BATCH_KEYS: Mapping[str, Key] = {
    "batch_size": WHOLE_NUMBER,
    "parallelism": WHOLE_NUMBER,
    "failure_strategy": one_of(*FAILURE_STRATEGIES),
}

LIFECYCLE_KEYS: Mapping[str, Key] = {
    "max_waiting_for_dependencies_minutes": MINUTES,
    "max_waiting_for_retry_minutes": MINUTES,
    "max_steps_in_process_minutes": MINUTES,
    "max_duration_minutes": MINUTES,
    "staleness_action": one_of(*STALENESS_ACTIONS),
    "auto_fail_on_timeout": YES_OR_NO,
    "auto_dlq_on_timeout": YES_OR_NO,
    "on_no_worker": one_of(*ON_NO_WORKER),
}

ENVIRONMENT_KEYS: Mapping[str, Key] = {"lifecycle": MAPPING, "steps": MAPPING, "metadata": MAPPING}
