"""The language: Jinja2's sandbox, reduced to data, and the few filters and tests that it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.core.expressions.values import (
    OUTPUT_LIMIT,
    Budget,
    CannotEvaluate,
    KeyReference,
    Keys,
    limited,
    plain,
)

ITEM_LIMIT = 10_000
"""Items of a list that a filter takes: sorting costs more than one pass."""

ALLOWED_NODES: tuple[type[nodes.Node], ...] = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr,
    nodes.Getitem, nodes.Slice, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.CondExpr,
    nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Mul,
    nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.Filter, nodes.Test,
    nodes.Keyword,
)  # fmt: skip

ALLOWED_TESTS = (
    "defined", "undefined", "none", "string", "number", "boolean", "integer", "float", "mapping",
    "sequence", "true", "false", "in", "even", "odd",
    "eq", "ne", "lt", "le", "gt", "ge", "==", "!=", "<", "<=", ">", ">=",
)  # fmt: skip


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _short(value: Any) -> Any:
    """The value, whose text is about to be made. Raises CannotEvaluate for one that is too large,
    before that takes memory."""
    if isinstance(value, KeyReference):
        return value
    return value if isinstance(value, str) else plain(value, Budget(limit=OUTPUT_LIMIT))


def _replace(text: str, old: str, new: str) -> str:
    text, old, new = str(_short(text)), str(_short(old)), str(_short(new))
    if len(text) + text.count(old) * len(new) > OUTPUT_LIMIT:
        raise CannotEvaluate(f"replace makes more than {OUTPUT_LIMIT:,} characters")
    return text.replace(old, new)


def _join(values: Iterable[Any], separator: str = "") -> str:
    parts = [str(value) for value in _short(values)]
    if sum(map(len, parts)) + len(parts) * len(separator) > OUTPUT_LIMIT:
        raise CannotEvaluate(f"join makes more than {OUTPUT_LIMIT:,} characters")
    return separator.join(parts)


def _sum(values: Iterable[Any]) -> Any:
    numbers = list(values)
    if not _numbers(*numbers):
        raise CannotEvaluate("sum adds numbers only")
    return limited(sum(numbers))


def _map(values: Iterable[Any], *, attribute: str) -> list[Any]:
    return [_member(value, attribute) for value in values]


def _round(value: Any, precision: int = 0) -> Any:
    if not _numbers(value):
        raise CannotEvaluate("round takes a number")
    return round(value, max(-15, min(precision, 15))) if precision else round(value)


def _tojson(value: Any) -> str:
    return json.dumps(plain(value, Budget()), ensure_ascii=False)


FROM_JINJA = (
    "abs", "default", "d", "first", "last", "length", "count", "lower", "upper", "trim", "int",
    "float", "string", "list", "max", "min", "sort", "unique",
)  # fmt: skip
OURS: dict[str, Callable[..., Any]] = {
    "replace": _replace, "join": _join, "sum": _sum, "map": _map, "round": _round,
    "tojson": _tojson,
}  # fmt: skip


def _bounded(filter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(each, list | tuple | dict) and len(each) > ITEM_LIMIT for each in args):
            raise CannotEvaluate(f"filters take at most {ITEM_LIMIT:,} items")
        return filter(*args, **kwargs)

    return bounded


def _of_texts(filter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter)
    def of_texts(value: Any, *args: Any, **kwargs: Any) -> Any:
        return filter(_short(value), *args, **kwargs)

    return of_texts


OF_TEXTS = ("lower", "upper", "trim", "string")
"""Jinja's filters that make a text of whatever they are given."""
UNBOUNDED = ("default", "d", "length", "count", "first", "tojson")
"""Filters that cost no more than reading their items, for any number of items."""


def _member(value: Any, name: Any) -> Any:
    """An item of a mapping; nothing else has members, and a member of a missing value is
    missing."""
    if isinstance(value, Undefined):
        return value
    if isinstance(value, Keys):
        return value.member(str(name))
    if isinstance(value, Mapping) and name in value:
        return value[name]
    return StrictUndefined(hint=f"there is no {str(name)!r}")


class Environment(ImmutableSandboxedEnvironment):
    """An environment that sees only data: items of mappings and lists, never attributes of
    objects."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        return _member(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Mapping | Undefined | Keys):
            return _member(obj, argument)
        if isinstance(obj, str | list | tuple) and isinstance(argument, int | slice):
            try:
                return obj[argument]
            except (IndexError, ValueError):
                pass
        return StrictUndefined(hint=f"there is no {str(argument)!r}")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator in ("*", "%", "/", "//", "-") and not _numbers(left, right):
            raise CannotEvaluate(f"{operator} takes two numbers")
        if operator == "+" and isinstance(left, str | list | tuple):
            limited(left)
            if isinstance(right, str | list | tuple) and len(left) + len(right) > OUTPUT_LIMIT:
                raise CannotEvaluate(f"+ makes more than {OUTPUT_LIMIT:,} characters or items")
        return limited(super().call_binop(context, operator, left, right))


environment = Environment(
    undefined=StrictUndefined, autoescape=False, cache_size=0, finalize=_short
)
environment.filters = {
    name: filter if name in UNBOUNDED else _bounded(filter)
    for name, filter in (
        {name: FILTERS[name] for name in FROM_JINJA}
        | {name: _of_texts(FILTERS[name]) for name in OF_TEXTS}
        | OURS
    ).items()
}
environment.globals.clear()
environment.tests = {name: environment.tests[name] for name in ALLOWED_TESTS}
