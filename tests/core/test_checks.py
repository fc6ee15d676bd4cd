"""A wrong configuration is told before anything starts."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from orchestrator.core import checks, executions
from settings import muster

pytestmark = pytest.mark.django_db  # tokens and staff are checked, too

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


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, []),
        ({"BROKER_URL": "amqp://mq.internal//"}, ["BROKER_URL"]),
        ({"BROKER_URL": "amqps://mq.internal//"}, []),
        ({"BROKER_URL": "amqp://127.0.0.1//"}, []),
        ({"REDIS_URL": "redis://cache.internal/0"}, ["REDIS_URL"]),
        ({"REDIS_URL": "rediss://cache.internal/0?ssl_cert_reqs=none"}, ["REDIS_URL"]),
        ({"REDIS_URL": "rediss://cache.internal/0"}, []),
    ],
)
def test_server_elsewhere_that_nobody_verifies_is_told(
    settings: Any, variables: dict[str, str], named: list[str]
) -> None:
    for name, value in variables.items():
        setattr(settings, name, value)
    assert [
        str(each.msg).partition(":")[0] for each in checks.check_servers_are_verified()
    ] == named


@pytest.mark.parametrize(
    ("host", "mode", "named"),
    [
        ("db.internal", None, True),
        ("db.internal", "require", True),
        ("db.internal", "verify-full", False),
        ("127.0.0.1", None, False),
        ("/run/postgresql", None, False),
    ],
)
def test_database_elsewhere_has_to_be_verified(
    settings: Any, monkeypatch: pytest.MonkeyPatch, host: str, mode: str | None, named: bool
) -> None:
    database = settings.DATABASES["default"]
    monkeypatch.setitem(database, "ENGINE", POSTGRESQL)
    monkeypatch.setitem(database, "HOST", host)
    monkeypatch.setitem(database, "OPTIONS", {"sslmode": mode} if mode else {})
    assert bool(checks.check_servers_are_verified()) == named


def test_data_directory_that_others_may_look_into_is_told(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    tmp_path.chmod(0o755)
    assert told() == ["muster.W004"]
    tmp_path.chmod(0o700)
    assert told() == []


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("MUSTER_KEEP_EXECUTIONS_DAYS", "nan", "at most 36500 or inf"),
        ("MUSTER_KEEP_EXECUTIONS_DAYS", "1e13", "at most 36500 or inf"),
        ("MUSTER_KEEP_TASKS", "nan", "a number or inf"),
        ("MUSTER_KEEP_RELEASES_HOURS", "inf", "at most 876000"),
        ("MUSTER_RUN_GRACE_SECONDS", "inf", "at most 3153600000"),
        ("MUSTER_RUN_GRACE_SECONDS", "1e13", "at most 3153600000"),
        ("MUSTER_STALENESS_MULTIPLIER", "inf", "a number"),
        ("MUSTER_STALENESS_MULTIPLIER", "nan", "a number"),
        ("MUSTER_DEADLINE_SECONDS", "inf", "0.001 to 31622400"),
        ("MUSTER_DEADLINE_SECONDS", "nan", "0.001 to 31622400"),
        ("MUSTER_DEADLINE_SECONDS", "1e13", "0.001 to 31622400"),
        ("MUSTER_SCHEDULED_TIMEOUT_SECONDS", "1e13", "0.001 to 31622400"),
    ],
)
def test_number_that_no_date_can_be_reckoned_with_is_refused(
    variable: str, text: str, expected: str
) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        muster.from_environment({variable: text})
    assert str(error.value) == f"{variable}={float(text)}: expected {expected}."


@pytest.mark.parametrize("text", ["", " "])
def test_empty_data_directory_is_the_default_one_and_not_that_of_the_program(text: str) -> None:
    kept = muster.from_environment({"MUSTER_DATA_DIR": text})
    assert kept.data_dir == muster.Muster().data_dir


def test_inf_is_no_limit_where_the_setting_says_so() -> None:
    names = ("KEEP_EXECUTIONS", "KEEP_EXECUTIONS_DAYS", "REQUESTS_PER_MINUTE", "KEEP_OUTPUT_DAYS")
    kept = muster.from_environment({f"MUSTER_{name}": "inf" for name in names})
    assert {getattr(kept, name.lower()) for name in names} == {math.inf}


def test_bounds_of_what_stands_in_for_requests_are_theirs() -> None:
    for name in ("deadline_seconds", "scheduled_timeout_seconds"):
        assert muster.BOUNDS[name] == executions.BOUNDS[name]
