"""No way out of a terminal state of a task or step, and tables that grow by thousands a second."""

from typing import Any

from django.db import migrations

TERMINAL = "('complete', 'cancelled', 'resolved_manually')"
TABLES = ("orchestrator_task", "orchestrator_step")

POSTGRESQL = (
    """
    CREATE FUNCTION orchestrator_state_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION '% % is %: a terminal state is final', TG_TABLE_NAME, OLD.id, OLD.state
            USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    *(
        f"""
        CREATE TRIGGER {table}_state_is_final BEFORE UPDATE ON {table}
        FOR EACH ROW WHEN (OLD.state IN {TERMINAL} AND OLD.state IS DISTINCT FROM NEW.state)
        EXECUTE FUNCTION orchestrator_state_is_final()
        """
        for table in TABLES
    ),
    *(
        f"ALTER TABLE {table} SET (fillfactor = 70, autovacuum_analyze_scale_factor = 0.02)"
        for table in TABLES
    ),
    "ALTER TABLE orchestrator_transitionrecord SET (autovacuum_analyze_scale_factor = 0.02)",
)

SQLITE = tuple(
    f"""
    CREATE TRIGGER {table}_state_is_final BEFORE UPDATE OF state ON {table}
    FOR EACH ROW WHEN OLD.state IN {TERMINAL} AND OLD.state IS NOT NEW.state
    BEGIN
        SELECT RAISE(ABORT, 'a terminal state is final');
    END
    """
    for table in TABLES
)


def install(apps: Any, schema_editor: Any) -> None:
    statements = POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE
    for statement in statements:
        # None, not the default (): a `%` of PL/pgSQL is no placeholder
        schema_editor.execute(statement, params=None)


def remove(apps: Any, schema_editor: Any) -> None:
    is_postgresql = schema_editor.connection.vendor == "postgresql"
    for table in TABLES:
        on = f" ON {table}" if is_postgresql else ""
        schema_editor.execute(f"DROP TRIGGER {table}_state_is_final{on}")
        if is_postgresql:
            schema_editor.execute(
                f"ALTER TABLE {table} RESET (fillfactor, autovacuum_analyze_scale_factor)"
            )
    if is_postgresql:
        schema_editor.execute("DROP FUNCTION orchestrator_state_is_final()")
        schema_editor.execute(
            "ALTER TABLE orchestrator_transitionrecord RESET (autovacuum_analyze_scale_factor)"
        )


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0005_workflows")]

    operations = [migrations.RunPython(install, remove)]
