"""Comparisons of a value V with a pattern P, and what a pattern must be for them.

A comparison is made once for its pattern, and then asked for many values. One without meaning is
false, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.automation.criteria import wildcards
from orchestrator.automation.criteria.scope import Scope
from orchestrator.automation.criteria.values import is_text, key_of, kind_of, same
from orchestrator.core.json_values import is_number
from orchestrator.core.schemas import patterns


@dataclass(frozen=True, slots=True)
class Noted:
    """An answer with the reason for it."""

    answer: bool
    note: str

    def __bool__(self) -> bool:
        return self.answer


Answer = bool | Noted
Test = Callable[[Any, Scope], Answer]
"""Compares a value with the pattern that the test was made for."""

MISSING = Noted(False, "there is no such value, or it is null")


# --- notes ---------------------------------------------------------------------------------------


def _wrong_kind(value: Any, expected: str) -> Noted:
    if value is None:
        return MISSING
    return Noted(False, f"expected {expected}, found {kind_of(value)}")


def negated(test_of: Callable[[Any], Test]) -> Callable[[Any], Test]:
    """Make the opposite, for every value."""

    def negated_of(pattern: Any) -> Test:
        test = test_of(pattern)

        def negated(value: Any, scope: Scope) -> Answer:
            answer = test(value, scope)
            return Noted(not answer, answer.note) if isinstance(answer, Noted) else not answer

        return negated

    return negated_of


# --- what a pattern must be ----------------------------------------------------------------------
# Each says what was expected in place of a pattern, or nothing if it will do.


def expected_text(pattern: Any) -> str:
    return "" if is_text(pattern) else "a text"


def expected_seconds(pattern: Any) -> str:
    return "" if is_number(pattern) else "a number of seconds"


def expected_number_or_text(pattern: Any) -> str:
    return "" if is_number(pattern) or is_text(pattern) else "a number or a text"


def expected_list_or_text(pattern: Any) -> str:
    return "" if isinstance(pattern, list | str) else "a list or a text"


def expected_expression(pattern: Any) -> str:
    if not is_text(pattern):
        return "a regular expression"
    try:
        patterns.compiled(pattern)
    except patterns.InvalidPattern as error:
        return f"{patterns.EXPECTED} ({error})"
    return ""


def expected_wildcard(pattern: Any) -> str:
    if not is_text(pattern):
        return "a text with * and ?"
    try:
        patterns.compiled(wildcards.as_expression(pattern))
    except patterns.InvalidPattern as error:
        return f"a text with *, ? and [a-z] ({error})"
    return ""


# --- equality and order --------------------------------------------------------------------------


def eq(pattern: Any) -> Test:
    """V is the same JSON value."""
    if isinstance(pattern, str):
        # most criteria are this one
        return lambda value, scope: value == pattern
    return lambda value, scope: value is not None and same(value, pattern)


def neq(pattern: Any) -> Test:
    """V is another JSON value; of null: V is not missing."""
    return lambda value, scope: not same(value, pattern)


def texts(compare: Callable[[str, str], bool], *, fold: bool = False) -> Callable[[Any], Test]:
    """Make an operator of two texts."""

    def test_of(pattern: str) -> Test:
        wanted = pattern.casefold() if fold else pattern

        def test(value: Any, scope: Scope) -> Answer:
            if not isinstance(value, str):
                return _wrong_kind(value, "a text")
            return compare(value.casefold() if fold else value, wanted)

        return test

    return test_of


def ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Test]:
    """Make an operator of two numbers, or of two texts."""

    def test_of(pattern: Any) -> Test:
        fits, expected = (is_text, "a text") if is_text(pattern) else (is_number, "a number")

        def test(value: Any, scope: Scope) -> Answer:
            return compare(value, pattern) if fits(value) else _wrong_kind(value, expected)

        return test

    return test_of


# --- parts ---------------------------------------------------------------------------------------


def contains(pattern: Any) -> Test:
    """P is a part of the text V, an element of the list V or a name of the object V."""

    def test(value: Any, scope: Scope) -> Answer:
        if isinstance(value, list):
            return any(same(element, pattern) for element in value)
        if not isinstance(value, str | dict):
            return _wrong_kind(value, "a text, a list or an object")
        if not isinstance(pattern, str):
            return Noted(False, f"{kind_of(value)} contains texts only")
        return pattern in value

    return test


def icontains(pattern: Any) -> Test:
    """The same, whatever the case."""
    folded = _folded(pattern)

    def test(value: Any, scope: Scope) -> Answer:
        if isinstance(value, list | dict):
            return any(same(_folded(element), folded) for element in value)
        if not isinstance(value, str):
            return _wrong_kind(value, "a text, a list or an object")
        if not isinstance(folded, str):
            return Noted(False, "a text contains texts only")
        return folded in value.casefold()

    return test


def _folded(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def is_in(pattern: Any) -> Test:
    """V is an element of the list P, or a part of the text P."""
    if isinstance(pattern, str):

        def in_text(value: Any, scope: Scope) -> Answer:
            return value in pattern if isinstance(value, str) else _wrong_kind(value, "a text")

        return in_text
    keys: set[Hashable] = {key for each in pattern if (key := key_of(each)) is not None}
    others = [each for each in pattern if key_of(each) is None]

    def in_list(value: Any, scope: Scope) -> Answer:
        if value is None:
            return MISSING
        key = key_of(value)
        return key in keys if key is not None else any(same(value, each) for each in others)

    return in_list


# --- patterns ------------------------------------------------------------------------------------


def matching(
    expression_of: Callable[[str], str] = str,
    *,
    ignore_case: bool = False,
    dot_matches_all: bool = False,
    at_start: bool = False,
) -> Callable[[Any], Test]:
    """Make an operator that matches a text against a regular expression, in linear time."""

    def test_of(pattern: str) -> Test:
        compiled = patterns.compiled(
            expression_of(pattern), ignore_case=ignore_case, dot_matches_all=dot_matches_all
        )
        match = compiled.match if at_start else compiled.search
        states = compiled.programsize

        def test(value: Any, scope: Scope) -> Answer:
            if not isinstance(value, str):
                return _wrong_kind(value, "a text")
            scope.work.match(states, len(value))
            # as bytes: the package would count the characters before each match
            return match(value.encode("utf-8", "replace")) is not None

        return test

    return test_of


# --- time ----------------------------------------------------------------------------------------


def older(compare: Callable[[float, float], bool]) -> Callable[[Any], Test]:
    """Make an operator of the seconds from the time V to the arrival of the event."""

    def test_of(seconds: float) -> Test:
        def test(value: Any, scope: Scope) -> Answer:
            moment = _moment(value)
            if moment is None:
                if value is None:
                    return MISSING
                return Noted(False, "expected a time in ISO 8601 or in seconds since 1970")
            age = (scope.received_at - moment).total_seconds()
            return Noted(compare(age, seconds), f"{age:g} s before the event was received")

        return test

    return test_of


def _moment(value: Any) -> datetime | None:
    try:
        if is_text(value):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if is_number(value):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


# --- existence -----------------------------------------------------------------------------------


def exists(pattern: Any) -> Test:
    """V is not missing."""
    return lambda value, scope: value is not None
