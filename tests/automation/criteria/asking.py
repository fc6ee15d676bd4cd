"""How the tests ask criteria."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrator.automation.criteria import Facts, compile_criteria

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def facts(payload: Any, **event: Any) -> Facts:
    return Facts(payload, NOW, event)


def holds(criteria: Any, payload: Any) -> bool:
    """The answer of the criteria, which every way of asking must give."""
    compiled = compile_criteria(criteria)
    explained = compiled.explain(facts(payload))
    assert explained.matched == compiled.matches(facts(payload))
    return explained.matched


def leaf(operator: str, pattern: Any = None) -> dict[str, Any]:
    return {"trigger.v": {"type": operator, "pattern": pattern}}


def note(criteria: Any, payload: Any) -> str:
    """The note of the only criterion."""
    (answer,) = compile_criteria(criteria).explain(facts(payload)).leaves
    return answer.note


def problems(criteria: Any) -> list[str]:
    from orchestrator.automation.criteria import InvalidCriteria

    try:
        compile_criteria(criteria)
    except InvalidCriteria as invalid:
        return [str(problem) for problem in invalid.problems]
    return []
