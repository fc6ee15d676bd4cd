"""A connection to SQLite that is kept, and fails for good."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import DatabaseError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(tmp_path: Path) -> BaseDatabaseWrapper:
    """A connection that is not closed after each request."""
    config = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": tmp_path / "kept.sqlite3",
        "CONN_MAX_AGE": 60,
    }
    kept: BaseDatabaseWrapper = ConnectionHandler({"default": config})["default"]
    _ask(kept)
    return kept


def _ask(connection: BaseDatabaseWrapper, statement: str = "SELECT 1") -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_broken_connection_is_closed_after_its_next_error(kept: BaseDatabaseWrapper) -> None:
    kept.connection.close()
    with pytest.raises(DatabaseError):
        _ask(kept)

    kept.close_if_unusable_or_obsolete()

    assert kept.connection is None
    _ask(kept)
    kept.close()


def test_wrong_statement_costs_no_connection(kept: BaseDatabaseWrapper) -> None:
    before = kept.connection
    with pytest.raises(OperationalError):
        _ask(kept, "SELECT nothing FROM nowhere")

    kept.close_if_unusable_or_obsolete()

    assert kept.connection is before
    kept.close()
