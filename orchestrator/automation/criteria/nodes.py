"""Compiled criteria: leaves, searches, and the groups that join them.

Each node has two functions: `holds` answers as fast as possible, and `leaves` asks every leaf and
says why it answers so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from orchestrator.automation.criteria.comparing import MISSING, Answer, Noted, Test
from orchestrator.automation.criteria.explanations import LeafAnswer
from orchestrator.automation.criteria.operators import SEARCH, Operator
from orchestrator.automation.criteria.paths import ITEM, ROOTS, Path, Reader
from orchestrator.automation.criteria.scope import (
    ELEMENT_LIMIT,
    TOO_WIDE,
    Broken,
    Scope,
    broken_by,
)
from orchestrator.automation.problems import Where
from orchestrator.core import expressions

Holds = Callable[[Scope], Answer]

EXPRESSION_NAMES = (*ROOTS, ITEM)
"""The names that a pattern's expression may begin with; which of them, is checked before."""


class Node(Protocol):
    """A part of criteria."""

    cost: int

    @property
    def holds(self) -> Holds:
        """Answer as fast as possible. Raises Broken."""

    def leaves(self, scope: Scope) -> Iterator[LeafAnswer]:
        """Ask every leaf."""


class Leaf:
    """An operator with its path and its pattern."""

    rendering_cost = 0

    def __init__(
        self,
        where: Where,
        path: Path,
        name: str,
        operator: Operator,
        pattern: Any,
        *,
        charged: bool,
    ) -> None:
        self.where = where
        self.path = path
        self.name = name
        self.operator = operator
        self.pattern = pattern
        self.cost = operator.cost + self.rendering_cost
        self.read = path.reader()
        self.test = self._test()
        self.holds = (_charged if charged else _free)(self.read, self.test)

    def _test(self) -> Test:
        return self.operator.test_of(self.pattern)

    def _ask(self, value: Any, scope: Scope) -> tuple[Any, Answer]:
        """The pattern, and the answer."""
        return self.pattern, self.test(value, scope)

    def leaves(self, scope: Scope) -> Iterator[LeafAnswer]:
        value = self.read(scope.roots)
        try:
            pattern, answer = self._ask(value, scope.with_all_work())
        except Exception as error:  # noqa: BLE001 - the other leaves are asked all the same
            pattern, answer = self.pattern, Noted(False, str(broken_by(error)))
        note = answer.note if isinstance(answer, Noted) else ""
        if value is None:
            note = note or MISSING.note
        yield LeafAnswer(self.where, self.path.text, self.name, value, pattern, bool(answer), note)


class RenderedLeaf(Leaf):
    """A leaf whose pattern has expressions in it, and is made for each event."""

    rendering_cost = 10

    def _test(self) -> Test:
        return lambda value, scope: self._ask(value, scope)[1]

    def _ask(self, value: Any, scope: Scope) -> tuple[Any, Answer]:
        try:
            pattern = expressions.render(
                self.pattern, scope.roots, scope.work.budget, names=EXPRESSION_NAMES
            )
        except expressions.CannotEvaluate as error:
            scope.work.check_expressions()
            return self.pattern, Noted(False, f"the pattern has no value: {error}")
        if pattern is None and self.operator.pattern == "required":
            return None, Noted(False, "the pattern is null")
        if self.operator.compiles and isinstance(pattern, str):
            scope.work.compile(pattern)
        if expected := self.operator.unfit(pattern):
            return pattern, Noted(False, f"the pattern: expected {expected}")
        return pattern, self.operator.test_of(pattern)(value, scope)


class Search:
    """Criteria of the elements of a list."""

    cost = 20

    def __init__(
        self, where: Where, path: Path, condition: str, pattern: Any, nodes: Sequence[Node]
    ) -> None:
        self.where = where
        self.path = path
        self.condition = condition
        self.pattern = pattern
        self.read = path.reader()
        self._quantifier = all if condition.startswith("all") else any
        join = _any if condition.endswith("2any") else _all
        self._fits = join([node.holds for node in _by_cost(nodes)])

    def holds(self, scope: Scope) -> Answer:
        value = self.read(scope.roots)
        elements = _elements(value)
        if elements is None:
            return _no_elements(value)
        scope.work.search(elements)
        return self._quantifier(bool(self._fits(scope.of_item(each))) for each in elements)

    def leaves(self, scope: Scope) -> Iterator[LeafAnswer]:
        value = self.read(scope.roots)
        answer: Answer = False
        try:
            answer = self.holds(scope.with_all_work())
            note = (
                answer.note
                if isinstance(answer, Noted)
                else self._count(value, scope.with_all_work())
            )
        except Exception as error:  # noqa: BLE001 - the other leaves are asked all the same
            note = str(broken_by(error))
        yield LeafAnswer(
            self.where, self.path.text, SEARCH, value, self.pattern, bool(answer), note
        )

    def _count(self, value: Any, scope: Scope) -> str:
        """Say which elements fit."""
        elements = _elements(value) or []
        fitting = [index for index, each in enumerate(elements) if self._fits(scope.of_item(each))]
        first = ", ".join(map(str, fitting[:10])) + (", …" if len(fitting) > 10 else "")
        what = "some criterion" if self.condition.endswith("2any") else "all criteria"
        count = f"{len(fitting)} of {len(elements)} elements fit {what}"
        return f"{count}: {first}" if fitting else count


class Group:
    """`all`, `any` or `not` of other nodes."""

    def __init__(self, kind: str, nodes: Sequence[Node]) -> None:
        self.kind = kind
        self.nodes = nodes
        self.cost = max((node.cost for node in nodes), default=0)
        tests = [node.holds for node in _by_cost(nodes)]
        self.holds: Holds = {"all": _all, "any": _any, "not": _not}[kind](tests)

    def leaves(self, scope: Scope) -> Iterator[LeafAnswer]:
        for node in self.nodes:
            yield from node.leaves(scope)


# --- how nodes are joined ------------------------------------------------------------------------


def _by_cost(nodes: Sequence[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.cost)


def _all(tests: Sequence[Holds]) -> Holds:
    if len(tests) == 1:
        return tests[0]

    def holds(scope: Scope) -> Answer:
        for test in tests:  # noqa: SIM110 - a generator would cost as much as the tests
            if not test(scope):
                return False
        return True

    return holds


def _any(tests: Sequence[Holds]) -> Holds:
    def holds(scope: Scope) -> Answer:
        return any(test(scope) for test in tests)

    return holds


def _not(tests: Sequence[Holds]) -> Holds:
    (test,) = tests
    return lambda scope: not test(scope)


def _free(read: Reader, test: Test) -> Holds:
    return lambda scope: test(read(scope.roots), scope)


def _charged(read: Reader, test: Test) -> Holds:
    """Make the answer of a leaf inside of a search, which may be asked very often."""

    def holds(scope: Scope) -> Answer:
        value = read(scope.roots)
        scope.work.search(value)
        return test(value, scope)

    return holds


def _elements(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        return None
    if len(value) > ELEMENT_LIMIT:
        raise Broken(
            TOO_WIDE, f"search looks at {ELEMENT_LIMIT:,} elements at most, found {len(value):,}"
        )
    return value


def _no_elements(value: Any) -> Noted:
    return MISSING if value is None else Noted(False, "expected a list or an object")
