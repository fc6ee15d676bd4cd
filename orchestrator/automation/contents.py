"""Trigger types, sensors and rules of packs, installed with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.automation import definitions, rules, trigger_types
from orchestrator.automation.problems import InvalidDocument, Problem, place_of
from orchestrator.automation.sensors import catalogue
from orchestrator.automation.sensors import definitions as of_sensors
from orchestrator.core.authority import Principal
from orchestrator.core.models import Pack
from orchestrator.core.packs import ContentProblem, ContentRefused, ContentReport


def install_types(
    values: Sequence[Mapping[str, Any]],
    *,
    pack: Pack,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    """Bring the trigger types of a pack in line with its files. Raises TypeTaken."""
    news = [definitions.new_type(each, pack=pack.name) for each in values]
    return trigger_types.install_types(news, pack=pack, now=now)


def install_sensors(
    values: Sequence[Mapping[str, Any]],
    *,
    pack: Pack,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    """Bring the sensors of a pack in line with its files; what an operator has enabled or disabled
    stays so. Raises SensorTaken."""
    news = [of_sensors.new_sensor(each, pack=pack.name) for each in values]
    actor = principal.actor if principal else "pack install"
    return catalogue.install_all(news, pack=pack, now=now, actor=actor)


def install_rules(
    values: Sequence[Mapping[str, Any]],
    *,
    pack: Pack,
    now: datetime,
    principal: Principal | None = None,
) -> ContentReport:
    """Bring the rules of a pack in line with its files; what an operator has enabled or disabled
    stays so. Raises ContentRefused, RuleTaken and PermissionMissing."""
    news = [definitions.new_rule(each, ref=f"{pack.name}.{each['name']}") for each in values]
    names = {new.ref: each["name"] for new, each in zip(news, values, strict=True)}
    try:
        return rules.install_all(news, pack=pack, now=now, principal=principal)
    except InvalidDocument as invalid:
        raise ContentRefused(
            _problem(names[str(problem.where[0])], problem) for problem in invalid.problems
        ) from None


def _problem(name: str, problem: Problem) -> ContentProblem:
    """The problem with a rule, whose ref comes first, as one with its file."""
    where = problem.where[1:]
    return ContentProblem((name,), where, f"{place_of(where)}: {problem.message}")
