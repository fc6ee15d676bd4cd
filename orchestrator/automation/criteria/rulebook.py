"""The rules of one trigger, arranged so that few of them are asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orchestrator.automation.criteria.compiling import Criteria, roots_of
from orchestrator.automation.criteria.explanations import Outcome
from orchestrator.automation.criteria.facts import Facts
from orchestrator.automation.criteria.values import key_of

INDEX_FROM = 16
"""Rules that must ask one path for equality, before they are found by its value."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class BookRule(Generic[K]):
    """A rule as the book needs it."""

    key: K
    """The value that stands for the rule in the answers."""
    criteria: Criteria
    is_backstop: bool = False
    """Asked only if no other rule matched."""


@dataclass(frozen=True)
class _Index:
    """Rules that need one of these values at a path."""

    read: Callable[[Any], Any]
    numbers: dict[Hashable, list[int]]
    """The numbers of the rules by the value that each needs."""

    def candidates(self, roots: dict[str, Any]) -> list[int]:
        key = key_of(self.read(roots))
        return self.numbers.get(key, []) if key is not None else []


class RuleBook(Generic[K]):
    """The rules of one trigger, in a stable order."""

    def __init__(self, rules: Iterable[BookRule[K]]) -> None:
        every = list(rules)
        self._rules = [rule for rule in every if not rule.is_backstop]
        self._backstops = [rule for rule in every if rule.is_backstop]
        self._indexes, self._others = _arranged(self._rules)

    def __len__(self) -> int:
        return len(self._rules) + len(self._backstops)

    def matching(self, facts: Facts) -> Iterator[tuple[K, Outcome]]:
        """Find the rules that match the event, and those that break on it, in their order.

        A rule that breaks has no influence on the others. The backstops come last, and only if no
        other rule matched.
        """
        any_matched = False
        roots = roots_of(facts)
        for rule in self._candidates(roots):
            outcome = rule.criteria.decide_over(roots, facts.received_at)
            any_matched |= outcome.matched
            if outcome.matched or outcome.broken:
                yield rule.key, outcome
        for rule in () if any_matched else self._backstops:
            outcome = rule.criteria.decide_over(roots, facts.received_at)
            if outcome.matched or outcome.broken:
                yield rule.key, outcome

    def _candidates(self, roots: dict[str, Any]) -> Iterable[BookRule[K]]:
        if not self._indexes:
            return self._rules
        numbers = list(self._others)
        for index in self._indexes:
            numbers += index.candidates(roots)
        return [self._rules[number] for number in sorted(numbers)]


def _arranged(rules: list[BookRule[K]]) -> tuple[list[_Index], list[int]]:
    """Make the indexes; the rules that none of them has are always asked.

    The path with the most different values comes first: it leaves the fewest rules to ask.
    """
    values: dict[tuple[Any, ...], dict[int, Hashable]] = defaultdict(dict)
    readers = {}
    for number, rule in enumerate(rules):
        for path, value in rule.criteria.required_values():
            place = (path.root, *path.steps)
            values[place].setdefault(number, value)
            readers[place] = path.reader()
    indexes: list[_Index] = []
    left = set(range(len(rules)))
    for place in sorted(values, key=lambda place: -len(set(values[place].values()))):
        needed = {number: key for number, key in values[place].items() if number in left}
        if len(needed) >= INDEX_FROM:
            indexes.append(_Index(readers[place], _by_value(needed)))
            left -= needed.keys()
    return indexes, sorted(left)


def _by_value(needed: dict[int, Hashable]) -> dict[Hashable, list[int]]:
    numbers: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in sorted(needed.items()):
        numbers[key].append(number)
    return dict(numbers)
