"""The key of searches that names a cause: `cause:7` finds the executions that failed of it."""

from __future__ import annotations

from functools import partial

from django.db.models import Q

from orchestrator.core.cursors import ID_MAX
from orchestrator.core.search.conditions import Asked, Condition, Reads, each
from orchestrator.core.search.grammar import Term, Value
from orchestrator.core.search.values import Unreadable
from orchestrator.rollups.models import Failure, FailureGroup

KEY = "cause"


def read(term: Term, asked: Asked) -> Condition:
    """The executions of these causes. Raises Mistaken for a number that the caller sees no cause
    of."""
    causes = each(term.values, partial(_cause, asked))
    failed = Failure.objects.filter(group__in=causes).values("execution_id")
    return Condition(Q(pk__in=failed), Reads.INDEXED)


def _cause(asked: Asked, value: Value) -> int:
    text = value.text
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(ID_MAX))):
        raise Unreadable("expected the number of a cause, as its page's address has it")
    number = int(text)
    # the same answer for one that is missing and one of another pack: its number tells nothing
    visible = FailureGroup.objects.visible_to(asked.principal)
    if number > ID_MAX or not visible.filter(pk=number).exists():
        raise Unreadable(f"no cause has the number {text}")
    return number
