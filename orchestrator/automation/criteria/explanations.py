"""Answers of criteria, with the reason for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.automation.problems import Where, place_of
from orchestrator.core.redaction import quoted

SHOWN_CHARACTERS = 1_000
"""A longer value is described in place of being shown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a rule to an event: matched, not matched, or broken with a reason."""

    matched: bool
    reason: str = ""
    """The reason why there is no answer, as a code: `payload_too_wide`, `criteria_too_costly`,
    `criteria_failed`. Empty unless broken."""
    message: str = ""

    @property
    def broken(self) -> bool:
        return bool(self.reason)


MATCHED, UNMATCHED = Outcome(True), Outcome(False)


@dataclass(frozen=True, slots=True)
class LeafAnswer:
    """One criterion, the value that it found and its answer."""

    where: Where
    """Its place in the criteria."""
    path: str
    operator: str
    """As written."""
    value: Any
    """V; None if it is missing."""
    pattern: Any
    """P; of an expression, its value."""
    answer: bool
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of a rule to an event, leaf by leaf. Every leaf is asked, also where the answer
    does not depend on it."""

    outcome: Outcome
    leaves: tuple[LeafAnswer, ...]

    @property
    def matched(self) -> bool:
        return self.outcome.matched


def shown(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON. Values and patterns may be secret: they are the caller's to hide."""
    outcome = explanation.outcome
    return {
        "matched": outcome.matched,
        "reason": outcome.reason,
        "message": outcome.message,
        "criteria": [_leaf(leaf) for leaf in explanation.leaves],
    }


def _leaf(leaf: LeafAnswer) -> Mapping[str, Any]:
    return {
        "where": place_of(leaf.where),
        "path": leaf.path,
        "operator": leaf.operator,
        "value": _value(leaf.value),
        "pattern": _value(leaf.pattern),
        "answer": leaf.answer,
        "note": leaf.note,
    }


def _value(value: Any) -> Any:
    short = len(json.dumps(value, ensure_ascii=False, default=str)) <= SHOWN_CHARACTERS
    return value if short else f"({quoted(value)})"
