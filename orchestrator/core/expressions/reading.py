"""From a text to an expression: checked part by part, then compiled, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, nodes

from orchestrator.core import key_references, spelling
from orchestrator.core.expressions.language import ALLOWED_NODES, environment
from orchestrator.core.expressions.values import (
    KEYS,
    OUTPUT_LIMIT,
    Budget,
    CannotEvaluate,
    InvalidExpression,
    KeyReference,
)

SOURCE_LIMIT = 4_096
"""Characters of one expression's text."""
NODE_LIMIT = 200
"""Parts of one expression."""

BEGINS = ("{{", "{%", "{#")


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
        tree = environment.parse(source)
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
        known, kind = environment.filters, "filter"
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise InvalidExpression("* and ** are not allowed in expressions")
    elif isinstance(node, nodes.Test):
        known, kind = environment.tests, "test"
    else:
        return
    if node.name not in known:
        near = spelling.near(node.name, known)
        hint = f", did you mean {near!r}?" if near else f" of {', '.join(sorted(known))}"
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
    tree.set_environment(environment)
    template = environment.from_string(tree)

    def evaluate(data: Mapping[str, Any], budget: Budget) -> Any:
        context = template.new_context(dict(data) | KEYS)
        for _ in template.root_render_func(context):
            pass
        return budget.plain(context.vars["result"])

    return evaluate


def _text(tree: nodes.Template) -> Callable[[Mapping[str, Any], Budget], Any]:
    template = environment.from_string(tree)

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


def _quoted(source: str) -> str:
    return source if len(source) <= 80 else f"{source[:80]}…"
