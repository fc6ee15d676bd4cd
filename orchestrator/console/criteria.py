"""The answer of a rule to an event, criterion by criterion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.automation.asking import Answer
from orchestrator.automation.shown import answers as shown
from orchestrator.automation.shown.answers import LeafShown
from orchestrator.console import draw
from orchestrator.core.words import Kind


@dataclass(frozen=True)
class Criterion:
    """One criterion, and whether it held."""

    where: str
    operator: str
    pattern: str
    found: str
    holds: bool
    note: str


@dataclass(frozen=True)
class Verdict:
    """The answer of a rule, or the reason why it has none; and each of its criteria."""

    text: str
    kind: Kind
    criteria: Sequence[Criterion]
    note: str = ""


def verdict(answer: Answer) -> Verdict:
    """Draw an answer; what is secret in it was removed for whoever asked."""
    outcome = answer.explanation.outcome
    criteria = [_criterion(leaf) for leaf in shown.shown(answer).criteria]
    if outcome.broken:
        return Verdict(outcome.reason, Kind.DANGER, criteria, draw.printable(outcome.message))
    note = "" if criteria else "It has no criteria: every event of its trigger matches."
    if outcome.matched:
        return Verdict("matches", Kind.SUCCESS, criteria, note)
    return Verdict("does not match", Kind.PLAIN, criteria, note)


def _criterion(leaf: LeafShown) -> Criterion:
    is_top = leaf.where == f"['{leaf.path}']"
    return Criterion(
        where=draw.printable(leaf.path if is_top else leaf.where),
        operator=leaf.operator,
        pattern=_json(leaf.pattern),
        found=_json(leaf.value),
        holds=leaf.answer,
        note=draw.printable(leaf.note),
    )


def _json(value: Any) -> str:
    if value is None:
        return ""
    return draw.printable(json.dumps(value, ensure_ascii=False, default=str))
