"""The operators: each compares the value V at a path with the pattern P.

No operator converts types. A value that is missing, or of a kind with which the comparison has no
meaning, makes the answer false, and a note says why; the negations are then true, as they are the
opposite of their operator for every value. A pattern that is of no use makes every operator false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.automation.criteria import comparing, wildcards
from orchestrator.automation.criteria.comparing import Test


@dataclass(frozen=True)
class Operator:
    """An operator as criteria name it."""

    names: tuple[str, ...]
    """The short name first."""
    holds_when: str
    """The condition under which it is true, for the reference."""
    edges: str
    """Its edge cases, likewise."""
    test_of: Callable[[Any], Test]
    """Make the test for a pattern."""
    unfit: Callable[[Any], str] = lambda pattern: ""
    """Say what was expected in place of this pattern, or nothing if it will do."""
    cost: int = 0
    """Cheap ones are asked first. Those of cost 0 cannot break."""
    compiles: bool = False
    """Its pattern is a regular expression, or becomes one."""
    pattern: str = "required"
    """`required`, `or null`, or `none`: whether it needs one."""

    @property
    def name(self) -> str:
        return self.names[0]


# --- the table -----------------------------------------------------------------------------------

_NOT_TEXTS = "not both texts: false"
_OPPOSITE = "the opposite of `{}` for every V; missing: true"

OPERATORS: tuple[Operator, ...] = (
    Operator(
        ("eq", "equals"),
        "V is the same JSON value as P",
        "missing: false; 1 and 1.0 are the same, true and 1 are not; lists in order, objects by "
        "name",
        comparing.eq,
    ),
    Operator(
        ("neq", "nequals"),
        "V is not the same JSON value as P",
        "missing: true, unless P is null; P null or left out: V is not missing",
        comparing.neq,
        pattern="or null",
    ),
    Operator(
        ("ieq", "iequals"),
        "V and P are the same text, whatever its case",
        _NOT_TEXTS,
        comparing.texts(operator.eq, fold=True),
        comparing.expected_text,
    ),
    Operator(
        ("lt", "lessthan"),
        "V is less than P",
        "two numbers, or two texts by code point; else false",
        comparing.ordered(operator.lt),
        comparing.expected_number_or_text,
    ),
    Operator(
        ("le",),
        "V is at most P",
        "as `lt`",
        comparing.ordered(operator.le),
        comparing.expected_number_or_text,
    ),
    Operator(
        ("gt", "greaterthan"),
        "V is greater than P",
        "as `lt`",
        comparing.ordered(operator.gt),
        comparing.expected_number_or_text,
    ),
    Operator(
        ("ge",),
        "V is at least P",
        "as `lt`",
        comparing.ordered(operator.ge),
        comparing.expected_number_or_text,
    ),
    Operator(
        ("contains",),
        "P is in V: a part of a text, an element of a list, a name of an object",
        "missing: false; a text contains texts only, an object names only",
        comparing.contains,
        cost=1,
    ),
    Operator(
        ("icontains",),
        "as `contains`, whatever the case",
        "of a list, the elements that are texts are compared without case",
        comparing.icontains,
        cost=1,
    ),
    Operator(
        ("ncontains",),
        "P is not in V",
        _OPPOSITE.format("contains"),
        comparing.negated(comparing.contains),
        cost=1,
    ),
    Operator(
        ("incontains",),
        "P is not in V, whatever the case",
        _OPPOSITE.format("icontains"),
        comparing.negated(comparing.icontains),
        cost=1,
    ),
    Operator(
        ("startswith",),
        "the text V begins with P",
        f"{_NOT_TEXTS}; P empty: true for every text",
        comparing.texts(str.startswith),
        comparing.expected_text,
    ),
    Operator(
        ("istartswith",),
        "as `startswith`, whatever the case",
        "as `startswith`",
        comparing.texts(str.startswith, fold=True),
        comparing.expected_text,
    ),
    Operator(
        ("endswith",),
        "the text V ends with P",
        f"{_NOT_TEXTS}; P empty: true for every text",
        comparing.texts(str.endswith),
        comparing.expected_text,
    ),
    Operator(
        ("iendswith",),
        "as `endswith`, whatever the case",
        "as `endswith`",
        comparing.texts(str.endswith, fold=True),
        comparing.expected_text,
    ),
    Operator(
        ("in", "inside"),
        "V is an element of the list P, or a part of the text P",
        "missing: false; P a text: V must be one (a warning says so when the rule is checked)",
        comparing.is_in,
        comparing.expected_list_or_text,
    ),
    Operator(
        ("nin", "ninside"),
        "V is no element of the list P, and no part of the text P",
        _OPPOSITE.format("in"),
        comparing.negated(comparing.is_in),
        comparing.expected_list_or_text,
    ),
    Operator(
        ("exists",),
        "V is not missing",
        "needs no P; null counts as missing",
        comparing.exists,
        pattern="none",
    ),
    Operator(
        ("nexists",),
        "V is missing",
        "needs no P; true also for a payload without anything in it",
        comparing.negated(comparing.exists),
        pattern="none",
    ),
    Operator(
        ("matchwildcard",),
        "the whole text V fits P, with `*`, `?`, `[seq]` and `[!seq]`",
        "case counts; `*` and `?` also stand for line ends; V no text: false",
        comparing.matching(wildcards.as_expression),
        comparing.expected_wildcard,
        cost=2,
        compiles=True,
    ),
    Operator(
        ("matchregex",),
        "the regular expression P fits at the start of the text V",
        "need not reach the end; a dot also stands for a line end; older than `regex`, which is "
        "the better one",
        comparing.matching(dot_matches_all=True, at_start=True),
        comparing.expected_expression,
        cost=2,
        compiles=True,
    ),
    Operator(
        ("regex",),
        "the regular expression P fits somewhere in the text V",
        "RE2: no look-around, no back references, linear time; `$` is the end of the text; V no "
        "text: false",
        comparing.matching(),
        comparing.expected_expression,
        cost=2,
        compiles=True,
    ),
    Operator(
        ("iregex",),
        "as `regex`, whatever the case",
        "as `regex`",
        comparing.matching(ignore_case=True),
        comparing.expected_expression,
        cost=2,
        compiles=True,
    ),
    Operator(
        ("timediff_lt", "td_lt"),
        "less than P seconds lie between the time V and the event's arrival",
        "V: ISO 8601 (without a zone: UTC) or seconds since 1970, else false; a V that is still to "
        "come gives a negative number, so it holds",
        comparing.older(operator.lt),
        comparing.expected_seconds,
    ),
    Operator(
        ("timediff_gt", "td_gt"),
        "more than P seconds lie between the time V and the event's arrival",
        "as `timediff_lt`; a V that is still to come: false",
        comparing.older(operator.gt),
        comparing.expected_seconds,
    ),
)

SEARCH = "search"
"""The one operator whose pattern is made of criteria; see `nodes`."""
SEARCH_CONDITIONS = {
    "any": "an element fits all criteria",
    "all": "every element fits all criteria; true for an empty list",
    "any2any": "an element fits some criterion",
    "all2any": "every element fits some criterion; true for an empty list",
}

BY_NAME = {name: each for each in OPERATORS for name in each.names}


def names() -> Iterable[str]:
    """All names of operators."""
    return (*BY_NAME, SEARCH)
