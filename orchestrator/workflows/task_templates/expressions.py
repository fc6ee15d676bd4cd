"""Expressions in task templates: `{{ task.context.amount }}`, `{{ steps.charge.result.id }}`.

Jinja2's immutable sandbox with strict undefined names, narrowed to what is only data. A sandbox
does not cap time and memory, so what could use much of either is not in the language: no calls,
loops, macros, powers or `~`; products and remainders of numbers only; a few filters, of which
those that can make more than they are given are our own. What is left costs, for each part of a
text of bounded length, at most as long as it takes to look at the data once.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.core.errors import MusterError

SOURCE_LIMIT = 4_096
"""Characters of one expression's text."""
NODE_LIMIT = 200
"""Parts of one expression."""
OUTPUT_LIMIT = 262_144
"""Characters, or items, of anything that an expression makes on its way."""
ITEM_LIMIT = 10_000
"""Items of a list that a filter looks at: sorting is dearer than looking once."""
RENDERED_LIMIT = 1_048_576
"""Characters and items of all that is rendered together."""
NUMBER_LIMIT = 2**63
"""Whole numbers beyond it are no numbers of a workflow, but somebody's try at memory."""

NAMES = ("task", "steps", "batch")
"""What an expression may begin with."""

BEGINS = ("{{", "{%", "{#")


class InvalidExpression(MusterError):
    """The expression is not valid."""


class CannotEvaluate(MusterError):
    """The expression has no value with the data that there is."""


# --- what the language is made of ----------------------------------------------------------------

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


def _limited(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict) and len(value) > OUTPUT_LIMIT:
        raise CannotEvaluate(f"it makes more than {OUTPUT_LIMIT:,} characters or items")
    if isinstance(value, int) and abs(value) > NUMBER_LIMIT:
        raise CannotEvaluate("it makes a number of more than 64 bits")
    return value


def _replace(text: str, old: str, new: str) -> str:
    text, old, new = str(text), str(old), str(new)
    if len(text) + text.count(old) * len(new) > OUTPUT_LIMIT:
        raise CannotEvaluate(f"replace makes more than {OUTPUT_LIMIT:,} characters")
    return text.replace(old, new)


def _join(values: Iterable[Any], separator: str = "") -> str:
    parts = [str(value) for value in values]
    if sum(map(len, parts)) + len(parts) * len(separator) > OUTPUT_LIMIT:
        raise CannotEvaluate(f"join makes more than {OUTPUT_LIMIT:,} characters")
    return separator.join(parts)


def _sum(values: Iterable[Any]) -> Any:
    numbers = list(values)
    if not _numbers(*numbers):
        raise CannotEvaluate("sum adds numbers only")
    return _limited(sum(numbers))


def _map(values: Iterable[Any], *, attribute: str) -> list[Any]:
    return [_member(value, attribute) for value in values]


def _round(value: Any, precision: int = 0) -> Any:
    if not _numbers(value):
        raise CannotEvaluate("round takes a number")
    return round(value, max(-15, min(precision, 15))) if precision else round(value)


def _tojson(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


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


UNBOUNDED = ("default", "d", "length", "count", "first", "tojson")
"""Cost the same, or no more than reading, however many items there are."""


def _member(value: Any, name: Any) -> Any:
    """A mapping's item; nothing else has members, and of what is missing everything is."""
    if isinstance(value, Undefined):
        return value
    if isinstance(value, Mapping) and name in value:
        return value[name]
    return StrictUndefined(hint=f"there is no {str(name)!r}")


class _Environment(ImmutableSandboxedEnvironment):
    """Sees data: items of mappings and lists, and never an attribute of a Python object."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        return _member(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Mapping | Undefined):
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
            _limited(left)
            if isinstance(right, str | list | tuple) and len(left) + len(right) > OUTPUT_LIMIT:
                raise CannotEvaluate(f"+ makes more than {OUTPUT_LIMIT:,} characters or items")
        return _limited(super().call_binop(context, operator, left, right))


_environment = _Environment(undefined=StrictUndefined, autoescape=False, cache_size=0)
_environment.filters = {
    name: filter if name in UNBOUNDED else _bounded(filter)
    for name, filter in ({name: FILTERS[name] for name in FROM_JINJA} | OURS).items()
}
_environment.globals.clear()
_environment.tests = {name: _environment.tests[name] for name in ALLOWED_TESTS}


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression:
    """A text with expressions in it, checked and compiled."""

    source: str
    steps: frozenset[str]
    """The steps that it refers to: no other one is needed to evaluate it."""
    names: frozenset[str]
    """Which of NAMES it uses."""
    _evaluate: Callable[[Mapping[str, Any]], Any]

    def value(self, data: Mapping[str, Any]) -> Any:
        """Evaluate once. A text that is one `{{ }}` gives the value itself, any other gives text.

        Raises CannotEvaluate. What comes out is not looked at for expressions again.
        """
        try:
            return self._evaluate(data)
        except CannotEvaluate as error:
            raise CannotEvaluate(f"{_quoted(self.source)}: {error}") from None
        except TemplateError as error:
            raise CannotEvaluate(f"{_quoted(self.source)}: {error.message}") from None
        except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise CannotEvaluate(f"{_quoted(self.source)}: {error}") from None


def is_expression(text: str) -> bool:
    """Whether there is an expression in this text."""
    return any(begin in text for begin in BEGINS)


@lru_cache(maxsize=4_096)
def read(source: str, *, bare: bool = False) -> Expression:
    """Check and compile. `bare`: the text may also be an expression without its braces.

    Raises InvalidExpression.
    """
    if bare and not is_expression(source):
        source = f"{{{{ {source} }}}}"
    if len(source) > SOURCE_LIMIT:
        raise InvalidExpression(f"expected at most {SOURCE_LIMIT:,} characters")
    try:
        tree = _environment.parse(source)
        steps, names = _checked(tree)
        whole = _whole(tree)
        if bare and whole is None:
            raise InvalidExpression("expected one expression and no text around it")
        evaluate = _native(whole) if whole is not None else _text(tree)
    except TemplateError as error:
        raise InvalidExpression(str(error.message)) from None
    except (RecursionError, SyntaxError, MemoryError):
        raise InvalidExpression("it is nested too deeply") from None
    return Expression(source, frozenset(steps), frozenset(names), evaluate)


def _checked(tree: nodes.Template) -> tuple[set[str], set[str]]:
    """The steps and names that it uses; raises InvalidExpression for what is not allowed."""
    steps: set[str] = set()
    names: set[str] = set()
    told: set[int] = set()
    for number, node in enumerate(_walk(tree), 1):
        if number > NODE_LIMIT:
            raise InvalidExpression(f"expected at most {NODE_LIMIT} parts")
        if not isinstance(node, ALLOWED_NODES):
            raise InvalidExpression(f"{type(node).__name__.lower()} is not allowed in expressions")
        _check_filter(node)
        if (step := _step_of(node)) is not None:
            steps.add(step)
            told.add(id(node.node))  # type: ignore[attr-defined]
        if isinstance(node, nodes.Name):
            if node.name not in NAMES:
                raise InvalidExpression(
                    f"expected {', '.join(NAMES)} or a text in quotes, found {node.name!r}"
                )
            names.add(node.name)
            if node.name == "steps" and id(node) not in told:
                raise InvalidExpression("expected the name of a step after `steps.`")
    return steps, names


def _walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Every node, each before its children, without recursion."""
    waiting: list[nodes.Node] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.iter_child_nodes())


def _check_filter(node: nodes.Node) -> None:
    if isinstance(node, nodes.Filter):
        known, kind = _environment.filters, "filter"
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise InvalidExpression("* and ** are not allowed in expressions")
    elif isinstance(node, nodes.Test):
        known, kind = _environment.tests, "test"
    else:
        return
    if node.name not in known:
        near = difflib.get_close_matches(node.name, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else f" of {', '.join(sorted(known))}"
        raise InvalidExpression(f"{node.name}: unknown {kind}{hint}")


def _step_of(node: nodes.Node) -> str | None:
    """`steps.NAME` or `steps['NAME']`."""
    if isinstance(node, nodes.Getattr) and _is_steps(node.node):
        return node.attr
    if isinstance(node, nodes.Getitem) and _is_steps(node.node):
        name = node.arg.value if isinstance(node.arg, nodes.Const) else None
        return name if isinstance(name, str) else None
    return None


def _is_steps(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "steps"


def _whole(tree: nodes.Template) -> nodes.Expr | None:
    """The expression that the whole text is, or None."""
    match tree.body:
        case [nodes.Output(nodes=[nodes.TemplateData()])] | []:
            return None
        case [nodes.Output(nodes=[expression])]:
            return expression
    return None


def _native(expression: nodes.Expr) -> Callable[[Mapping[str, Any]], Any]:
    target = nodes.Name("result", "store")
    body: list[nodes.Node] = [nodes.Assign(target, expression, lineno=1)]
    tree = nodes.Template(body, lineno=1)
    tree.set_environment(_environment)
    template = _environment.from_string(tree)

    def evaluate(data: Mapping[str, Any]) -> Any:
        context = template.new_context(dict(data))
        for _ in template.root_render_func(context):
            pass
        return _plain(context.vars["result"])

    return evaluate


def _text(tree: nodes.Template) -> Callable[[Mapping[str, Any]], str]:
    template = _environment.from_string(tree)

    def evaluate(data: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        length = 0
        for piece in template.root_render_func(template.new_context(dict(data))):
            pieces.append(piece)
            length += len(piece)
            if length > OUTPUT_LIMIT:
                raise CannotEvaluate(f"it makes more than {OUTPUT_LIMIT:,} characters")
        return "".join(pieces)

    return evaluate


def _plain(value: Any) -> Any:
    """The same in JSON's types. Raises CannotEvaluate, and UndefinedError for a missing name."""
    if isinstance(value, Undefined):
        str(value)  # raises, and says which name it is
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return _limited(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CannotEvaluate("it makes no finite number")
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_plain(item) for item in value]
    raise CannotEvaluate(f"it makes a {type(value).__name__}, which is no data")


def _quoted(source: str) -> str:
    return source if len(source) <= 80 else f"{source[:80]}…"


# --- parameters: values with expressions somewhere inside ----------------------------------------


def texts(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text with an expression inside a JSON value, with the way to it."""
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


def render(value: Any, data: Mapping[str, Any]) -> Any:
    """The same JSON value with every expression in it replaced by what it says.

    Raises InvalidExpression and CannotEvaluate.
    """
    rendered = _render(value, data)
    _check_size(rendered)
    return rendered


def _render(value: Any, data: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return read(value).value(data) if is_expression(value) else value
    if isinstance(value, Mapping):
        return {key: _render(item, data) for key, item in value.items()}
    if isinstance(value, list):
        return [_render(item, data) for item in value]
    return value


def _check_size(value: Any) -> None:
    size = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        size += len(item) + 1 if isinstance(item, str) else 1
        if size > RENDERED_LIMIT:
            raise CannotEvaluate(f"it makes more than {RENDERED_LIMIT:,} characters and items")
        if isinstance(item, Mapping):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
