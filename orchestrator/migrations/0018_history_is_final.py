"""What has happened stays as it was: histories, and rows whose status or state is terminal.

Whoever writes a later migration that changes such rows has to take the triggers away for as long,
and on SQLite, where a table that is altered may be made anew, to put them back.
"""

from typing import Any

from django.db import migrations, models

EXECUTION_ENDED = "OLD.status IN ('completed', 'failed', 'timeout', 'cancelled', 'abandoned')"
TASK_ENDED = "OLD.state IN ('complete', 'cancelled', 'resolved_manually')"
ENDED = {
    "orchestrator_execution": (EXECUTION_ENDED, "a terminal status is final"),
    "orchestrator_task": (TASK_ENDED, "a terminal state is final"),
    "orchestrator_step": (TASK_ENDED, "a terminal state is final"),
}
"""Tables, when a row of theirs is final, and why nothing of it can be changed then."""
EARLIER = {
    "orchestrator_execution": "orchestrator_terminal_is_final",
    "orchestrator_task": "orchestrator_task_state_is_final",
    "orchestrator_step": "orchestrator_step_state_is_final",
}
"""The triggers of earlier migrations, which kept only the status, or state, as it was."""
HISTORIES = ("orchestrator_executionevent", "orchestrator_transitionrecord")
WHY = "history is final"

POSTGRESQL = (
    """
    CREATE FUNCTION orchestrator_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION '% of % refused%: %', TG_OP, TG_TABLE_NAME,
            CASE WHEN TG_LEVEL = 'ROW' THEN ', row ' || OLD.id ELSE '' END, TG_ARGV[0]
            USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    *(
        f"""
        CREATE TRIGGER {table}_is_final BEFORE UPDATE OR DELETE ON {table}
        FOR EACH ROW WHEN ({ended}) EXECUTE FUNCTION orchestrator_is_final('{why}')
        """
        for table, (ended, why) in ENDED.items()
    ),
    *(
        f"""
        CREATE TRIGGER {table}_is_final BEFORE UPDATE OR DELETE ON {table}
        FOR EACH ROW EXECUTE FUNCTION orchestrator_is_final('{WHY}')
        """
        for table in HISTORIES
    ),
    *(
        f"""
        CREATE TRIGGER {table}_is_kept BEFORE TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION orchestrator_is_final('{WHY}')
        """
        for table in (*ENDED, *HISTORIES)
    ),
)

SQLITE = tuple(
    f"""
    CREATE TRIGGER {table}_{verb.lower()}_is_final BEFORE {verb} ON {table} FOR EACH ROW {when}
    BEGIN
        SELECT RAISE(ABORT, '{verb} of {table} refused: {why}');
    END
    """
    for table, when, why in (
        *((table, f"WHEN {ended}", why) for table, (ended, why) in ENDED.items()),
        *((table, "", WHY) for table in HISTORIES),
    )
    for verb in ("UPDATE", "DELETE")
)


def install(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    statements = POSTGRESQL if on_postgresql else SQLITE
    for statement in (*_removal_of_earlier(on_postgresql), *statements):
        # None, not the default (): a `%` of PL/pgSQL is no placeholder
        schema_editor.execute(statement, params=None)


def _removal_of_earlier(on_postgresql: bool) -> list[str]:
    if not on_postgresql:
        # a migration in between may have made the table anew, without them
        return [f"DROP TRIGGER IF EXISTS {trigger}" for trigger in EARLIER.values()]
    return [f"DROP TRIGGER {trigger} ON {table}" for table, trigger in EARLIER.items()]


def remove(apps: Any, schema_editor: Any) -> None:
    on_postgresql = schema_editor.connection.vendor == "postgresql"
    for statement in [*_removal(on_postgresql), *_earlier(on_postgresql)]:
        schema_editor.execute(statement, params=None)


def _removal(on_postgresql: bool) -> list[str]:
    tables = (*ENDED, *HISTORIES)
    if not on_postgresql:
        verbs = ("update", "delete")
        return [
            f"DROP TRIGGER IF EXISTS {table}_{verb}_is_final" for table in tables for verb in verbs
        ]
    triggers = [
        f"DROP TRIGGER {table}_{what} ON {table}"
        for table in tables
        for what in ("is_final", "is_kept")
    ]
    return [*triggers, "DROP FUNCTION orchestrator_is_final()"]


def _earlier(on_postgresql: bool) -> list[str]:
    """The triggers of 0002 and 0006, as they were."""
    statements = []
    for table, trigger in EARLIER.items():
        column = "status" if table == "orchestrator_execution" else "state"
        ended, why = ENDED[table]
        if on_postgresql:
            function = (
                "orchestrator_terminal_is_final"
                if column == "status"
                else "orchestrator_state_is_final"
            )
            statements.append(f"""
                CREATE TRIGGER {trigger} BEFORE UPDATE ON {table}
                FOR EACH ROW WHEN ({ended} AND OLD.{column} IS DISTINCT FROM NEW.{column})
                EXECUTE FUNCTION {function}()
            """)
        else:
            statements.append(f"""
                CREATE TRIGGER {trigger} BEFORE UPDATE OF {column} ON {table}
                FOR EACH ROW WHEN {ended} AND OLD.{column} IS NOT NEW.{column}
                BEGIN
                    SELECT RAISE(ABORT, '{why}');
                END
            """)
    return statements


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0014_missing_code")]

    operations = [
        migrations.AddConstraint(
            model_name="executionevent",
            constraint=models.UniqueConstraint(
                "execution",
                name="execution_ends_once",
                condition=models.Q(
                    to_status__in=["abandoned", "cancelled", "completed", "failed", "timeout"]
                ),
            ),
        ),
        migrations.RunPython(install, remove),
    ]
