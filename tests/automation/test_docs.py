"""The reference of criteria and schedules says what the code does."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from orchestrator.automation.criteria.operators import OPERATORS, SEARCH_CONDITIONS
from orchestrator.automation.schedules import TYPES, parse
from orchestrator.automation.schedules.parsing import COMMON, OF_TYPE, Parameter
from tests.automation.criteria.asking import holds, problems

PAGE = (Path(__file__).parents[2] / "docs" / "criteria.md").read_text()


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def criteria() -> list[dict[str, Any]]:
    """All examples of criteria."""
    documents = [yaml.safe_load(text) for text in fenced("yaml")]
    return [d.get("criteria", d) for d in documents if "trigger" not in d]


def default_of(parameter: Parameter) -> str:
    return "" if parameter.default is None else f"`{parameter.default}`"


def test_operators_are_described_as_the_code_does() -> None:
    rows = [
        f"| {' '.join(f'`{name}`' for name in each.names)} | {each.holds_when} | {each.edges} |"
        for each in OPERATORS
    ]
    assert "\n".join(rows) in PAGE
    conditions = [f"| `{name}` | {text} |" for name, text in SEARCH_CONDITIONS.items()]
    assert "\n".join(conditions) in PAGE


def test_parameters_of_schedules_are_described_as_the_code_does() -> None:
    rows = [
        f"| `{each.name}` | {each.expected} | {default_of(each)} | {each.meaning} |"
        for each in COMMON
    ]
    assert "\n".join(rows) in PAGE
    for type_ref in TYPES:
        assert f"| `{type_ref}` |" in PAGE
        assert all(f"`{each.name}`" in PAGE for each in OF_TYPE[type_ref])


def test_first_example_matches_its_event() -> None:
    (payload,) = map(json.loads, fenced("json"))
    first, *_ = criteria()
    assert holds(first, payload)
    assert not holds(first, payload | {"tags": ["dev"]})


def test_examples_of_criteria_can_be_installed() -> None:
    assert [problems(example) for example in criteria()] == [[]] * 5


def test_example_of_a_schedule_can_be_installed() -> None:
    (example,) = [d["trigger"] for d in map(yaml.safe_load, fenced("yaml")) if "trigger" in d]
    schedule = parse(example["type"], example["parameters"])
    tick = schedule.next_after(datetime(2026, 7, 4, tzinfo=UTC))  # a Saturday
    assert tick == datetime(2026, 7, 6, 3, tzinfo=UTC)
