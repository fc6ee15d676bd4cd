"""Fixtures of the tests of sensors."""

from __future__ import annotations

import secrets

import pytest

from workers import processes


@pytest.fixture(autouse=True)
def service_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a service of its own, as it would be in production: what ends its sensors leaves
    those of equal names alone that another process of this run has started."""
    monkeypatch.setenv(processes.WORKER_TOKEN, secrets.token_hex(16))
