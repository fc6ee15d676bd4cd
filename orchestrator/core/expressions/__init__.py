"""Expressions in templates and rules: `{{ task.context.amount }}`, `{{ trigger.body.id }}`.

Jinja2's immutable sandbox with strict undefined names, reduced to data. A sandbox does not limit
time and memory, so the language has nothing that could use much of either: no calls, loops, macros,
powers or `~`; products and remainders of numbers only; a few filters, of which those whose output
can be larger than their input are our own. Each part of a text of bounded length costs at most one
pass over the data.

Each user says which names an expression may begin with. Two have rules of their own, where they
may be used: `steps` is followed by the name of a step, and `keys.billing.stripe` is a reference to
a key: it may be put somewhere, alone or into a text, and nothing can be made of it. Data cannot
refer to a key.

All that one step or rule makes is charged to one `Budget`, value by value and before it is made.
What an expression only passes on is charged for and handed over as it is: nothing is copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.core import key_references
from orchestrator.core.expressions.reading import Expression, is_expression, read
from orchestrator.core.expressions.values import (
    Budget,
    CannotEvaluate,
    InvalidExpression,
    plain_list,
    plain_mapping,
)

__all__ = [
    "Budget",
    "CannotEvaluate",
    "Expression",
    "InvalidExpression",
    "is_expression",
    "read",
    "render",
    "texts",
]


def texts(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find every text with an expression inside a JSON value, with its path."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        where, item = waiting.pop()
        if isinstance(item, str):
            if is_expression(item):
                yield where, item
        elif isinstance(item, Mapping):
            waiting += [((*where, key), each) for key, each in item.items()]
        elif isinstance(item, list):
            waiting += [((*where, index), each) for index, each in enumerate(item)]


def render(
    value: Any,
    data: Mapping[str, Any],
    budget: Budget | None = None,
    *,
    names: tuple[str, ...],
) -> Any:
    """Return the same JSON value with every expression in it replaced by its value.

    What it shares with the template and the data is not copied: change neither. Raises
    InvalidExpression, and CannotEvaluate also for what is over the budget.
    """
    return _render(value, data, budget or Budget(), names)


def _render(value: Any, data: Mapping[str, Any], budget: Budget, names: tuple[str, ...]) -> Any:
    if isinstance(value, str) and is_expression(value):
        return read(value, names=names).value(data, budget)
    if isinstance(value, Mapping):
        if key_references.is_reference(value):
            budget.spend(len(json.dumps(value)))
            return value
        return plain_mapping(value, lambda item: _render(item, data, budget, names), budget)
    if isinstance(value, list):
        return plain_list(value, lambda item: _render(item, data, budget, names), budget)
    budget.spend(len(value) + 1 if isinstance(value, str) else 1)
    return value
