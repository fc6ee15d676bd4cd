"""The parameters that a rule gives to its action, with expressions over the event.

`{{ keys.billing.stripe }}` is rendered to a reference, as in task templates; its value is put in
its place at the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.automation.problems import InvalidDocument, Problem
from orchestrator.core import expressions, key_references
from orchestrator.core.redaction import quoted

NAMES = ("trigger", "event", "rule", "pack", "keys")
"""The names that an expression may begin with."""


class InvalidParameters(InvalidDocument):
    """The parameters of the rule's action have problems."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The values that the expressions of a rule may use, as JSON."""

    trigger: Any
    """The event's payload."""
    event: Mapping[str, Any]
    """The facts that are known of the event besides."""
    rule: Mapping[str, Any]
    pack: Mapping[str, Any]

    @property
    def roots(self) -> dict[str, Any]:
        return {
            "trigger": self.trigger,
            "event": self.event,
            "rule": self.rule,
            "pack": self.pack,
        }


def check(parameters: Any) -> list[Problem]:
    """Find all problems with the parameters of a rule, before there is an event."""
    if not isinstance(parameters, Mapping):
        return [Problem((), f"expected a mapping of parameters, found {quoted(parameters)}")]
    problems = [Problem(path, message) for path, message in key_references.faults(parameters)]
    for path, text in expressions.texts(parameters):
        if key_references.TEXT in path:
            problems.append(Problem(path, f"expected plain text here, found {quoted(text)}"))
            continue
        try:
            expressions.read(text, names=NAMES)
        except expressions.InvalidExpression as error:
            problems.append(Problem(path, str(error)))
    return sorted(problems, key=lambda problem: list(map(str, problem.where)))


def render(parameters: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """Return the parameters with every expression replaced by its value, of its type.

    A name that does not exist is a problem, never an empty value. What the result shares with the
    event is not copied: change neither. Raises InvalidParameters with the place of each problem.
    """
    budget = expressions.Budget()
    try:
        return dict(expressions.render(parameters, known.roots, budget, names=NAMES))
    except (expressions.InvalidExpression, expressions.CannotEvaluate) as error:
        problems = _problems(parameters, known) or [Problem((), str(error))]
        raise InvalidParameters(problems) from None


def _problems(parameters: Mapping[str, Any], known: Known) -> list[Problem]:
    """Evaluate each expression by itself, and note the place of each that has no value."""
    problems = []
    budget = expressions.Budget()
    for path, text in expressions.texts(parameters):
        try:
            expressions.read(text, names=NAMES).value(known.roots, budget)
        except (expressions.InvalidExpression, expressions.CannotEvaluate) as error:
            problems.append(Problem(path, str(error)))
    return sorted(problems, key=lambda problem: list(map(str, problem.where)))
