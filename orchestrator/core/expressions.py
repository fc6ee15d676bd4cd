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

import difflib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import islice
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.core import key_references
from orchestrator.core.errors import MusterError

SOURCE_LIMIT = 4_096
"""Characters of one expression's text."""
NODE_LIMIT = 200
"""Parts of one expression."""
OUTPUT_LIMIT = 262_144
"""Characters, or items, of any intermediate value of an expression."""
ITEM_LIMIT = 10_000
"""Items of a list that a filter takes: sorting costs more than one pass."""
RENDERED_LIMIT = 1_048_576
"""Characters and items of all values that one step or rule is given."""
CPU_LIMIT_SECONDS = 5.0
"""Processor time of all expressions of one step or rule: each is cheap, but there may be many."""
NUMBER_LIMIT = 2**63
"""No workflow needs larger whole numbers; they would only be an attempt to use up memory."""

BEGINS = ("{{", "{%", "{#")


class InvalidExpression(MusterError):
    """The expression is not valid."""


class CannotEvaluate(MusterError):
    """The expression has no value with the data that there is."""


# --- keys ----------------------------------------------------------------------------------------


class KeyReference(str):
    """What `keys.billing.stripe` gives: the text `billing/stripe`, and no plain text."""

    __slots__ = ()

    def __str__(self) -> KeyReference:
        return self  # it stays what it is where a text is put together

    @property
    def plain(self) -> dict[str, str]:
        """As parameters have it."""
        return {key_references.KEY: str.__str__(self)}


class _Keys:
    """`keys`, or with an owner `keys.billing`."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner

    def member(self, name: str) -> _Keys | KeyReference:
        return KeyReference(f"{self.owner}/{name}") if self.owner else _Keys(name)


KEYS = {"keys": _Keys()}


# --- the budget ----------------------------------------------------------------------------------


class Budget:
    """The characters and items that one step or rule may still make, and its processor time."""

    def __init__(self, *, limit: int = RENDERED_LIMIT, seconds: float = CPU_LIMIT_SECONDS) -> None:
        self.limit = limit
        self.seconds = seconds
        self.spent = 0
        self.until = time.thread_time() + seconds
        self.measured: dict[int, tuple[Any, int]] = {}
        """Values that were passed on, by their identity, with their sizes."""

    def spend(self, size: int) -> None:
        """Charge for a value that is about to be made. Raises CannotEvaluate."""
        self.spent += size
        if self.spent > self.limit:
            raise CannotEvaluate(
                f"the values together make more than {self.limit:,} characters and items"
                if self.limit == RENDERED_LIMIT
                else f"it makes more than {self.limit:,} characters and items"
            )

    def plain(self, value: Any) -> Any:
        """The value as JSON, charged for. One that is passed on again is not measured again."""
        if known := self.measured.get(id(value)):
            self.spend(known[1])
            return value
        before = self.spent
        plain = _plain(value, self)
        if plain is value:
            # kept, so that no other value takes its identity
            self.measured[id(value)] = value, self.spent - before
        return plain

    @property
    def is_late(self) -> bool:
        """True if the processor time is used up."""
        return time.thread_time() > self.until

    def check_time(self) -> None:
        """Raise CannotEvaluate if the processor time is used up."""
        if self.is_late:
            raise CannotEvaluate(
                f"the expressions take more than {self.seconds:g} s of processor time"
            )


# --- parts of the language -----------------------------------------------------------------------

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


def _short(value: Any) -> Any:
    """The value, whose text is about to be made. Raises CannotEvaluate for one that is too large,
    before that takes memory."""
    if isinstance(value, KeyReference):
        return value
    return value if isinstance(value, str) else _plain(value, Budget(limit=OUTPUT_LIMIT))


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
    return _limited(sum(numbers))


def _map(values: Iterable[Any], *, attribute: str) -> list[Any]:
    return [_member(value, attribute) for value in values]


def _round(value: Any, precision: int = 0) -> Any:
    if not _numbers(value):
        raise CannotEvaluate("round takes a number")
    return round(value, max(-15, min(precision, 15))) if precision else round(value)


def _tojson(value: Any) -> str:
    return json.dumps(_plain(value, Budget()), ensure_ascii=False)


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
    if isinstance(value, _Keys):
        return value.member(str(name))
    if isinstance(value, Mapping) and name in value:
        return value[name]
    return StrictUndefined(hint=f"there is no {str(name)!r}")


class _Environment(ImmutableSandboxedEnvironment):
    """An environment that sees only data: items of mappings and lists, never attributes of
    objects."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        return _member(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Mapping | Undefined | _Keys):
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


_environment = _Environment(
    undefined=StrictUndefined, autoescape=False, cache_size=0, finalize=_short
)
_environment.filters = {
    name: filter if name in UNBOUNDED else _bounded(filter)
    for name, filter in (
        {name: FILTERS[name] for name in FROM_JINJA}
        | {name: _of_texts(FILTERS[name]) for name in OF_TEXTS}
        | OURS
    ).items()
}
_environment.globals.clear()
_environment.tests = {name: _environment.tests[name] for name in ALLOWED_TESTS}


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression:
    """A text with expressions in it, checked and compiled."""

    source: str
    steps: frozenset[str]
    """The steps that it refers to: evaluation needs no others."""
    names: frozenset[str]
    """The names that it begins with somewhere."""
    _evaluate: Callable[[Mapping[str, Any], Budget], Any]

    def value(self, data: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Evaluate once. A text that is a single `{{ }}` gives the value itself, any other gives
        text.

        The value shares with the data whatever is in both: change neither. Raises CannotEvaluate,
        also for what is over the budget. Expressions in the output are not evaluated again.
        """
        budget = budget or Budget()
        try:
            budget.check_time()
            return self._evaluate(data, budget)
        except CannotEvaluate as error:
            raise CannotEvaluate(f"{_quoted(self.source)}: {error}") from None
        except TemplateError as error:
            raise CannotEvaluate(f"{_quoted(self.source)}: {error.message}") from None
        except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise CannotEvaluate(f"{_quoted(self.source)}: {error}") from None


def is_expression(text: str) -> bool:
    """Return True if this text contains an expression."""
    return any(begin in text for begin in BEGINS)


@lru_cache(maxsize=4_096)
def read(source: str, *, names: tuple[str, ...], bare: bool = False) -> Expression:
    """Check and compile. It may begin with these names only. `bare`: the text may also be an
    expression without its braces.

    Raises InvalidExpression.
    """
    if bare and not is_expression(source):
        source = f"{{{{ {source} }}}}"
    if len(source) > SOURCE_LIMIT:
        raise InvalidExpression(f"expected at most {SOURCE_LIMIT:,} characters")
    try:
        tree = _environment.parse(source)
        steps, used = _checked(tree, names)
        whole = _whole(tree)
        if bare and whole is None:
            raise InvalidExpression("expected one expression and no text around it")
        if bare and "keys" in used:
            raise InvalidExpression("a condition cannot depend on a key")
        evaluate = _native(whole) if whole is not None else _text(tree)
    except TemplateError as error:
        raise InvalidExpression(str(error.message)) from None
    except (RecursionError, SyntaxError, MemoryError):
        raise InvalidExpression("it is nested too deeply") from None
    return Expression(source, frozenset(steps), frozenset(used), evaluate)


def _checked(tree: nodes.Template, names: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Return the steps and names that it uses. Raises InvalidExpression for anything not
    allowed."""
    steps: set[str] = set()
    used: set[str] = set()
    nodes_of_steps: set[int] = set()
    names_of_keys = set(map(id, _checked_keys(tree)))
    for number, node in enumerate(_walk(tree), 1):
        if number > NODE_LIMIT:
            raise InvalidExpression(f"expected at most {NODE_LIMIT} parts")
        if not isinstance(node, ALLOWED_NODES):
            raise InvalidExpression(f"{type(node).__name__.lower()} is not allowed in expressions")
        _check_filter(node)
        if (step := _step_of(node)) is not None:
            steps.add(step)
            nodes_of_steps.add(id(node.node))  # type: ignore[attr-defined]
        if isinstance(node, nodes.Name):
            if node.name not in names:
                raise InvalidExpression(
                    f"expected {', '.join(names)} or a text in quotes, found {node.name!r}"
                )
            used.add(node.name)
            if node.name == "steps" and id(node) not in nodes_of_steps:
                raise InvalidExpression("expected the name of a step after `steps.`")
            if node.name == "keys" and id(node) not in names_of_keys:
                raise InvalidExpression(
                    "a key may only be put somewhere, as in {{ keys.billing.stripe }}: no filter, "
                    "test or operator takes it"
                )
    return steps, used


def _checked_keys(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Find every `keys` that is put somewhere: in the output, in a list or mapping, or as one of
    the two values of a condition. Raises InvalidExpression for what cannot be a key."""
    waiting: list[nodes.Node] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.Template):
            waiting += node.body
        elif isinstance(node, nodes.Output):
            waiting += node.nodes
        elif isinstance(node, nodes.List | nodes.Tuple):
            waiting += node.items
        elif isinstance(node, nodes.Dict):
            waiting += [pair.value for pair in node.items]
        elif isinstance(node, nodes.CondExpr):
            waiting += [each for each in (node.expr1, node.expr2) if each is not None]
        elif isinstance(node, nodes.Getattr | nodes.Getitem):
            name, owner = _member_of(node), _member_of(node.node)
            root = owner[1] if owner else None
            if name and owner and isinstance(root, nodes.Name) and root.name == "keys":
                reference = f"{owner[0]}/{name[0]}"
                if key_references.REFERENCE.fullmatch(reference) is None:
                    expected = key_references.EXPECTED
                    raise InvalidExpression(f"keys: expected {expected}, found {reference!r:.60}")
                yield root


def _member_of(node: nodes.Node) -> tuple[str, nodes.Node] | None:
    """The name and the object of `object.name` and `object['name']`."""
    if isinstance(node, nodes.Getattr):
        return node.attr, node.node
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return str(node.arg.value), node.node
    return None


def _walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Iterate over all nodes, each before its children, without recursion."""
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
    """Return the expression if it is the whole text, else None."""
    match tree.body:
        case [nodes.Output(nodes=[nodes.TemplateData()])] | []:
            return None
        case [nodes.Output(nodes=[expression])]:
            return expression
    return None


def _native(expression: nodes.Expr) -> Callable[[Mapping[str, Any], Budget], Any]:
    target = nodes.Name("result", "store")
    body: list[nodes.Node] = [nodes.Assign(target, expression, lineno=1)]
    tree = nodes.Template(body, lineno=1)
    tree.set_environment(_environment)
    template = _environment.from_string(tree)

    def evaluate(data: Mapping[str, Any], budget: Budget) -> Any:
        context = template.new_context(dict(data) | KEYS)
        for _ in template.root_render_func(context):
            pass
        return budget.plain(context.vars["result"])

    return evaluate


def _text(tree: nodes.Template) -> Callable[[Mapping[str, Any], Budget], Any]:
    template = _environment.from_string(tree)

    def evaluate(data: Mapping[str, Any], budget: Budget) -> Any:
        pieces: list[str] = []
        length = 0
        for piece in template.root_render_func(template.new_context(dict(data) | KEYS)):
            pieces.append(piece)
            length += len(piece)
            if length > OUTPUT_LIMIT:
                raise CannotEvaluate(f"it makes more than {OUTPUT_LIMIT:,} characters")
        budget.spend(length + 1)
        if any(isinstance(piece, KeyReference) for piece in pieces):
            return _text_with_keys(pieces)
        return "".join(pieces)

    return evaluate


def _text_with_keys(pieces: Iterable[str]) -> dict[str, Any]:
    """A text of which some pieces are not known yet, as parameters have it."""
    parts: list[Any] = []
    for piece in pieces:
        if isinstance(piece, KeyReference):
            parts.append(piece.plain)
        elif parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return {key_references.TEXT: parts}


def _plain(value: Any, budget: Budget) -> Any:
    """Convert to JSON's types, charging for each value before it is made. What is JSON already is
    not copied.

    Raises CannotEvaluate, and UndefinedError for a missing name.
    """
    if isinstance(value, KeyReference):
        budget.spend(len(value) + 1)
        return value.plain
    if isinstance(value, str):
        budget.spend(len(value) + 1)
        return str(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value, lambda item: _plain(item, budget), budget)
    if isinstance(value, list | tuple | Iterator):
        return _plain_list(value, lambda item: _plain(item, budget), budget)
    budget.spend(1)
    if value is None or isinstance(value, bool | int):
        return _limited(value)
    if isinstance(value, Undefined):
        str(value)  # raises, and names what is missing
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CannotEvaluate("it makes no finite number")
        return value
    raise CannotEvaluate(f"it makes a {type(value).__name__}, which is no data")


def _plain_mapping(
    value: Mapping[Any, Any], convert: Callable[[Any], Any], budget: Budget
) -> Mapping[str, Any]:
    """The mapping with its items converted: itself if that changes none of them."""
    budget.spend(1)
    changed: dict[Any, Any] | None = None if type(value) is dict else {}
    for number, (key, item) in enumerate(value.items()):
        name = str(key)
        if name in (key_references.KEY, key_references.TEXT):
            raise CannotEvaluate(f"its data has {name} in it: only a template refers to keys")
        budget.spend(len(name) + 1)
        converted = convert(item)
        if changed is None and (converted is not item or name is not key):
            changed = dict(islice(value.items(), number))
        if changed is not None:
            changed[name] = converted
    return value if changed is None else changed


def _plain_list(
    values: Iterable[Any], convert: Callable[[Any], Any], budget: Budget
) -> Iterable[Any]:
    """The same for a list; whatever else has items becomes one."""
    budget.spend(1)
    changed: list[Any] | None = None if type(values) is list else []
    for number, item in enumerate(values):
        converted = convert(item)
        if changed is None and converted is not item:
            changed = list(islice(values, number))
        if changed is not None:
            changed.append(converted)
    return values if changed is None else changed


def _quoted(source: str) -> str:
    return source if len(source) <= 80 else f"{source[:80]}…"


# --- parameters: values with expressions somewhere inside ----------------------------------------


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
        return _plain_mapping(value, lambda item: _render(item, data, budget, names), budget)
    if isinstance(value, list):
        return _plain_list(value, lambda item: _render(item, data, budget, names), budget)
    budget.spend(len(value) + 1 if isinstance(value, str) else 1)
    return value
