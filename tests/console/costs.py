"""The most that a page may cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.console import kept

STATEMENTS_MAX = 12
AUDIT = 'INSERT INTO "access_auditevent"'
"""Elsewhere than in tests a thread writes it."""


@contextmanager
def looking_alone() -> Iterator[list[str]]:
    """Ask for one page while nothing is kept of what is the same for everybody; returns its
    statements, of which there are no more than there may be."""
    kept.clear()
    statements: list[str] = []
    with CaptureQueriesContext(connection) as queries:
        yield statements
    statements += [each["sql"] for each in queries if not each["sql"].startswith(AUDIT)]
    shown = "\n".join(each[:150] for each in statements)
    assert len(statements) <= STATEMENTS_MAX, f"{len(statements)} statements:\n{shown}"
