"""A database of another version is refused before anything in it is changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from orchestrator.core.migration_history import UnknownMigrations


@pytest.fixture
def recorder(database: str) -> Iterator[MigrationRecorder]:
    recorder = MigrationRecorder(connection)
    before = set(recorder.applied_migrations())
    yield recorder
    for app, name in set(recorder.applied_migrations()) - before:
        recorder.record_unapplied(app, name)


def test_database_of_another_version_is_refused_by_name(recorder: MigrationRecorder) -> None:
    recorder.record_applied("orchestrator", "0099_of_a_later_version")
    with pytest.raises(UnknownMigrations) as refused:
        call_command("migrate", verbosity=0)
    assert "orchestrator.0099_of_a_later_version" in str(refused.value)
    assert str(connection.settings_dict["NAME"]) in str(refused.value)


def test_views_are_still_there_after_a_refusal(recorder: MigrationRecorder) -> None:
    recorder.record_applied("workflows", "0099_of_a_later_version")
    with pytest.raises(UnknownMigrations):
        call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM v_task_staleness_monitoring")


def test_migrations_of_apps_that_are_not_ours_are_no_concern(recorder: MigrationRecorder) -> None:
    recorder.record_applied("somebody_else", "0001_initial")
    call_command("migrate", verbosity=0)
