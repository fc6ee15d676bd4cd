"""Words of a search: ids in any part that is printed, actions, and correlation ids."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.db.models import Q

from orchestrator.core.models import Action, Execution
from orchestrator.core.models.time_ordered import id_ends_with, ids_beginning_with
from orchestrator.core.search.conditions import NONE, Asked, Condition, Reads, any_of, each
from orchestrator.core.search.grammar import Term
from orchestrator.core.search.values import Unreadable

HEX = re.compile(r"[0-9a-f]{1,32}")
LEAST_DIGITS = 4
"""Of a part of an id without the `…` that marks one."""
DIGITS_OF_A_MINUTE = 8
"""Ids that share so many digits were made within 66 seconds."""

ID = "an id, at least four digits of its beginning or its end, or a short id such as 01a20033…ac1d"


def words(term: Term, asked: Asked) -> Condition:
    """Ids, parts of actions, and correlation ids."""
    return _any_of(each(term.values, lambda value: _word(value.text, asked)))


def ids(term: Term, asked: Asked) -> Condition:
    """Ids alone."""
    return _any_of(each(term.values, lambda value: _id(value.text, asked)))


def _any_of(found: Sequence[Condition]) -> Condition:
    return Condition(any_of([each.q for each in found]), max(each.reads for each in found))


def _word(text: str, asked: Asked) -> Condition:
    """The condition by which an index knows the word. A word that none knows may be the end of an
    id."""
    if "…" in text:
        return _id(text, asked)
    # refs are looked up among the few actions: a LIKE over executions would read them all
    actions = Action.objects.visible_to(asked.principal, "executions.read")
    refs = list(actions.filter(ref__icontains=text).values_list("ref", flat=True))
    digits = _digits(text)
    known = _known(
        [
            Condition(Q(correlation_id=text), Reads.FEW),
            *([Condition(Q(action_ref__in=refs), Reads.INDEXED)] if refs else []),
            *([_beginning(digits)] if digits else []),
        ],
        asked,
    )
    return known or (_end(digits) if digits else Condition(NONE, Reads.FEW))


def _known(conditions: Sequence[Condition], asked: Asked) -> Condition | None:
    """Those of the conditions that an execution meets. No `OR`: for one the database would walk the
    table."""
    rows = Execution.objects.visible_to(asked.principal).order_by()
    matching = [each for each in conditions if rows.filter(each.q).exists()]
    if len(matching) < 2:
        return matching[0] if matching else None
    found = [rows.filter(each.q).values("pk") for each in matching]
    return Condition(Q(pk__in=found[0].union(*found[1:])), max(each.reads for each in matching))


def _id(text: str, asked: Asked) -> Condition:
    beginning, dots, end = text.partition("…")
    if not dots:
        digits = _digits(text)
        if not digits:
            raise Unreadable(f"expected {ID}")
        return _known([_beginning(digits)], asked) or _end(digits)
    parts = [_hex(each) for each in (beginning, end)]
    if not all(not part or HEX.fullmatch(part) for part in parts) or not any(parts):
        raise Unreadable(f"expected {ID}")
    if not parts[0]:
        return _end(parts[1])
    found = _beginning(parts[0])
    if not parts[1]:
        return found
    reads = Reads.FEW if found.reads is Reads.FEW else Reads.SCANS
    return Condition(found.q & _end(parts[1]).q, reads)


def _beginning(digits: str) -> Condition:
    reads = Reads.FEW if len(digits) >= DIGITS_OF_A_MINUTE else Reads.INDEXED
    return Condition(Q(pk__range=ids_beginning_with(digits)), reads)


def _end(digits: str) -> Condition:
    return Condition(Q(id_ends_with(digits)), Reads.SCANS)


def _digits(text: str) -> str:
    """The digits of a part of an id; empty if it is none."""
    digits = _hex(text)
    return digits if len(digits) >= LEAST_DIGITS and HEX.fullmatch(digits) else ""


def _hex(text: str) -> str:
    return text.lower().replace("-", "")
