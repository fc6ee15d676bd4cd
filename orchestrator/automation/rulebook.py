"""The enabled rules of each trigger, compiled, and as fresh as the last committed change.

Every change of a rule changes a stamp in its transaction. Whoever evaluates an event asks for that
stamp after the event was read: a rule that was disabled before the event was recorded is not
there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from orchestrator.automation.criteria import BookRule, RuleBook, compile_criteria
from orchestrator.automation.models import Revision, Rule
from orchestrator.automation.problems import InvalidDocument

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Known:
    """A rule with the revision of it that was read."""

    rule_id: int
    revision_id: int
    fault: str = ""
    """The reason why its criteria cannot be used any more; empty if they can."""


@dataclass(frozen=True)
class Book:
    """The rules at one stamp of the `Revision`."""

    stamp: UUID | None
    by_trigger: Mapping[int, RuleBook[Known]] = field(default_factory=dict)
    by_rule: Mapping[int, RuleBook[Known]] = field(default_factory=dict)
    """Each rule alone, for replays."""
    faulty: Mapping[int, list[Known]] = field(default_factory=dict)
    """Rules that cannot be asked, by trigger."""


_book: Book | None = None


def current() -> Book:
    """The rules now, in the caller's transaction."""
    global _book
    stamp, book = Revision.objects.stamp(), _book
    if book is None or book.stamp != stamp:
        book = _book = _read(stamp)
    return book


def _read(stamp: UUID | None) -> Book:
    by_trigger: dict[int, list[BookRule[Known]]] = defaultdict(list)
    by_rule: dict[int, RuleBook[Known]] = {}
    faulty: dict[int, list[Known]] = defaultdict(list)
    for rule in Rule.objects.enabled().select_related("revision").order_by("pk"):
        try:
            compiled = compile_criteria(rule.current.criteria)
        except InvalidDocument as invalid:  # installed by a release that allowed it
            log.error("criteria cannot be used", rule=rule.ref, error=str(invalid))
            faulty[rule.trigger_id].append(_known(rule, str(invalid)))
            continue
        entry = BookRule(_known(rule), compiled, bool(rule.current.options.get("backstop")))
        by_trigger[rule.trigger_id].append(entry)
        by_rule[rule.pk] = RuleBook([entry])
    books = {trigger_id: RuleBook(entries) for trigger_id, entries in by_trigger.items()}
    return Book(stamp, books, by_rule, faulty)


def _known(rule: Rule, fault: str = "") -> Known:
    return Known(rule.pk, rule.current.pk, fault)
