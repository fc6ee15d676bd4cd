"""A wrong configuration is told before anything starts."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

SQLITE = "django.db.backends.sqlite3"
POSTGRESQL = "django.db.backends.postgresql"


def told() -> list[str]:
    return [str(found.id) for found in run_checks() if str(found.id).startswith("muster.")]


def test_default_configuration_is_right() -> None:
    assert told() == []


def test_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert told() == ["muster.E001"]
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", POSTGRESQL)
    settings.BROKER_URL = "amqp://localhost//"
    assert told() == []


@pytest.mark.parametrize(
    ("engine", "broker", "expected"),
    [
        (SQLITE, "sqlitemq:////tmp/broker.db", []),
        (SQLITE, "amqp://localhost//", ["muster.W001"]),
        (POSTGRESQL, "sqlitemq:////tmp/broker.db", ["muster.W002"]),
        (POSTGRESQL, "amqp://localhost//", []),
    ],
)
def test_half_of_a_real_installation_is_told(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    broker: str,
    expected: list[str],
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", engine)
    settings.BROKER_URL = broker
    assert told() == expected


@pytest.mark.parametrize(
    ("debug", "hosts", "expected"),
    [
        (True, ["localhost", "127.0.0.1"], []),
        (True, ["localhost", "muster.example.org"], ["muster.W003"]),
        (True, ["*"], ["muster.W003"]),
        (False, ["*"], []),
    ],
)
def test_debug_pages_for_others_are_told(
    settings: Any, debug: bool, hosts: list[str], expected: list[str]
) -> None:
    settings.DEBUG, settings.ALLOWED_HOSTS = debug, hosts
    assert told() == expected


def test_data_directory_that_cannot_be_written_is_refused(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "missing"
    assert told() == ["muster.E002"]
