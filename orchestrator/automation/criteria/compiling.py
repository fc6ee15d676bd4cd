"""Criteria as a rule has them, checked and compiled."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from datetime import datetime
from typing import Any

from orchestrator.automation.criteria import operators, paths
from orchestrator.automation.criteria.explanations import (
    MATCHED,
    UNMATCHED,
    Explanation,
    Outcome,
)
from orchestrator.automation.criteria.facts import Facts
from orchestrator.automation.criteria.nodes import (
    EXPRESSION_NAMES,
    Group,
    Leaf,
    Node,
    RenderedLeaf,
    Search,
)
from orchestrator.automation.criteria.paths import Path
from orchestrator.automation.criteria.scope import Scope, Work, broken_by
from orchestrator.automation.criteria.values import key_of
from orchestrator.automation.problems import InvalidDocument, Problem, Where, nearest_or_all
from orchestrator.core import expressions
from orchestrator.core.redaction import quoted

DEPTH_LIMIT = 5
"""Levels of `all`, `any` and `not`."""
SEARCH_DEPTH_LIMIT = 3
LEAF_LIMIT = 100

LEAF_KEYS = ("type", "pattern", "condition")


class InvalidCriteria(InvalidDocument):
    """The criteria have problems."""


class Criteria:
    """Compiled criteria. They may be used by several threads at once."""

    def __init__(self, root: Group, warnings: tuple[Problem, ...]) -> None:
        self._root = root
        self._holds = root.holds
        self.warnings = warnings
        """Warnings about what is allowed, and may not be what was meant."""

    def matches(self, facts: Facts) -> bool:
        """Return True if they hold for the event. Never raises: broken criteria do not match."""
        return self.decide(facts).matched

    def decide(self, facts: Facts) -> Outcome:
        """Answer, and say so if there is no answer. Never raises."""
        return self.decide_over(roots_of(facts), facts.received_at)

    def decide_over(self, roots: dict[str, Any], received_at: datetime) -> Outcome:
        """The same over roots that are made once for many rules."""
        try:
            return MATCHED if self._holds(Scope(roots, received_at, Work())) else UNMATCHED
        except Exception as error:  # noqa: BLE001 - it breaks this rule, and no other
            broken = broken_by(error)
            return Outcome(False, broken.reason, str(broken))

    def explain(self, facts: Facts) -> Explanation:
        """Ask every leaf, and say what it found. Never raises."""
        scope = Scope(roots_of(facts), facts.received_at, Work())
        return Explanation(self.decide(facts), tuple(self._root.leaves(scope)))

    def required_values(self) -> Iterator[tuple[Path, Hashable]]:
        """Find the paths whose value must be this one, or the criteria do not hold."""
        for node in self._root.nodes:
            if type(node) is not Leaf or node.operator is not operators.BY_NAME["eq"]:
                continue
            if (key := key_of(node.pattern)) is not None:
                yield node.path, key


def roots_of(facts: Facts) -> dict[str, Any]:
    """The values that paths begin with."""
    return {"trigger": facts.trigger, "event": dict(facts.event)}


def compile_criteria(document: Any) -> Criteria:
    """Check and compile the criteria of a rule. None and `{}` hold for every event.

    Raises InvalidCriteria with all problems; their places are paths in the document.
    """
    compiler = _Compiler()
    root = Group("all", compiler.nodes({} if document is None else document, (), _Place()))
    if compiler.problems:
        raise InvalidCriteria(compiler.problems)
    return Criteria(root, tuple(compiler.warnings))


class _Place:
    """The surroundings of a criterion: its depth, and the searches around it."""

    def __init__(self, depth: int = 0, searches: int = 0) -> None:
        self.depth = depth
        self.searches = searches

    def deeper(self) -> _Place:
        return _Place(self.depth + 1, self.searches)

    def in_search(self) -> _Place:
        return _Place(self.depth, self.searches + 1)


class _Compiler:
    """Makes nodes of a document, and notes its problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._leaves = 0

    def nodes(self, document: Any, where: Where, place: _Place) -> list[Node]:
        """The nodes of a mapping, of which all must hold."""
        if not isinstance(document, Mapping):
            self._problem(where, f"expected a mapping of criteria, found {quoted(document)}")
            return []
        nodes = [
            self._node(str(name), body, (*where, str(name)), place)
            for name, body in document.items()
        ]
        return [node for node in nodes if node is not None]

    def _problem(self, where: Where, message: str) -> None:
        self.problems.append(Problem(where, message))

    def _node(self, name: str, body: Any, where: Where, place: _Place) -> Node | None:
        if name in ("all", "any", "not"):
            return self._group(name, body, where, place.deeper())
        self._leaves += 1
        if self._leaves == LEAF_LIMIT + 1:
            self._problem(where, f"expected at most {LEAF_LIMIT} criteria, found more")
        return self._leaf(name, body, where, place)

    def _group(self, kind: str, body: Any, where: Where, place: _Place) -> Node | None:
        if place.depth > DEPTH_LIMIT:
            self._problem(where, f"expected at most {DEPTH_LIMIT} levels of all, any and not")
            return None
        if kind == "not":
            return Group("not", [self._joined(body, where, place)])
        if not isinstance(body, list) or not body:
            self._problem(where, f"expected a list of criteria, found {quoted(body)}")
            return None
        return Group(
            kind, [self._joined(each, (*where, index), place) for index, each in enumerate(body)]
        )

    def _joined(self, body: Any, where: Where, place: _Place) -> Node:
        if body == {}:
            self._problem(where, "expected at least one criterion, found none")
        return Group("all", self.nodes(body, where, place))

    def _leaf(self, text: str, body: Any, where: Where, place: _Place) -> Node | None:
        path = self._path(text, where, place)
        if not isinstance(body, Mapping):
            self._problem(where, f"expected a mapping with type and pattern, found {quoted(body)}")
            return None
        for key in body:
            if key not in LEAF_KEYS:
                hint = nearest_or_all(str(key), LEAF_KEYS)
                self._problem((*where, str(key)), f"unknown key, {hint}")
        name = self._operator(body, where)
        if name is None:
            return None
        if name == operators.SEARCH:
            return self._search(path, body, where, place.in_search())
        if "condition" in body:
            self._problem((*where, "condition"), "only search has a condition")
        return self._compared(path, operators.BY_NAME[name], body, where, place)

    def _path(self, text: str, where: Where, place: _Place) -> Path | None:
        try:
            return paths.parse(text, in_search=place.searches > 0)
        except paths.InvalidPath as error:
            self._problem(where, str(error))
            return None

    def _operator(self, body: Mapping[str, Any], where: Where) -> str | None:
        if "type" not in body:
            self._problem(where, "type: missing key, expected an operator, such as eq")
            return None
        name = body["type"]
        known = list(operators.names())
        if not isinstance(name, str):
            self._problem((*where, "type"), f"expected an operator, found {quoted(name)}")
            return None
        if name.lower() not in known:
            hint = nearest_or_all(name.lower(), known)
            self._problem((*where, "type"), f"unknown operator {quoted(name)}, {hint}")
            return None
        return name.lower()

    # --- leaves ----------------------------------------------------------------------------------

    def _compared(
        self,
        path: Path | None,
        operator: operators.Operator,
        body: Mapping[str, Any],
        where: Where,
        place: _Place,
    ) -> Node | None:
        pattern, kind = body.get("pattern"), Leaf
        if operator.pattern == "none":
            pattern = None
        elif any(expressions.texts(pattern)):
            kind = RenderedLeaf
            self._check_expressions(pattern, (*where, "pattern"), place)
        elif not self._fits(operator, body, where):
            return None
        if path is None:
            return None
        name = str(body["type"]).lower()
        return kind(where, path, name, operator, pattern, charged=place.searches > 0)

    def _fits(self, operator: operators.Operator, body: Mapping[str, Any], where: Where) -> bool:
        pattern = body.get("pattern")
        if pattern is None:
            if operator.pattern == "required":
                found = "null" if "pattern" in body else "none"
                self._problem((*where, "pattern"), f"expected a pattern, found {found}")
            return operator.pattern != "required"
        if expected := operator.unfit(pattern):
            self._problem((*where, "pattern"), f"expected {expected}, found {quoted(pattern)}")
            return False
        if operator.name in ("in", "nin") and isinstance(pattern, str):
            self._warn(
                (*where, "pattern"),
                "a text: looks for the value as a part of it; for equal values write a list",
            )
        return True

    def _check_expressions(self, pattern: Any, where: Where, place: _Place) -> None:
        names = EXPRESSION_NAMES if place.searches else paths.ROOTS
        for path, text in expressions.texts(pattern):
            try:
                expressions.read(text, names=names)
            except expressions.InvalidExpression as error:
                message = paths.NO_KEYS if _refers_to_a_key(text, names) else str(error)
                self._problem((*where, *path), message)

    def _search(
        self, path: Path | None, body: Mapping[str, Any], where: Where, place: _Place
    ) -> Node | None:
        condition, pattern = body.get("condition"), body.get("pattern")
        known = operators.SEARCH_CONDITIONS
        if place.searches > SEARCH_DEPTH_LIMIT:
            self._problem(where, f"expected at most {SEARCH_DEPTH_LIMIT} searches in each other")
            return None
        if not isinstance(condition, str) or condition not in known:
            expected = f"expected one of {', '.join(known)}"
            found = quoted(condition) if "condition" in body else "none"
            self._problem((*where, "condition"), f"{expected}, found {found}")
        elif condition.startswith("all"):
            self._warn((*where, "condition"), f"{condition} also holds for an empty list")
        if not isinstance(pattern, Mapping) or not pattern:
            expected = "expected a mapping of criteria with paths such as item.name"
            self._problem((*where, "pattern"), f"{expected}, found {quoted(pattern)}")
            return None
        nodes = self.nodes(pattern, (*where, "pattern"), place)
        if path is None or not isinstance(condition, str):
            return None
        return Search(where, path, condition, pattern, nodes)

    def _warn(self, where: Where, message: str) -> None:
        self.warnings.append(Problem(where, message))


def _refers_to_a_key(text: str, names: tuple[str, ...]) -> bool:
    try:
        return "keys" in expressions.read(text, names=(*names, "keys")).names
    except expressions.InvalidExpression:
        return False
