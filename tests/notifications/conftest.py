"""Fixtures of all tests of notifications."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def kept_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the connection of this thread alone: a test before, which had a database, may have left
    one, and asking it if it is old is access to a database."""
    monkeypatch.setattr("workers.notifier.credentials.close_old_connections", lambda: None)
