"""No way out of a terminal status, whoever tries; and room in the pages for updates in place."""

from typing import Any

from django.db import migrations

TERMINAL = "('completed', 'failed', 'timeout', 'cancelled', 'abandoned')"

POSTGRESQL = (
    """
    CREATE FUNCTION orchestrator_terminal_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'execution % is %: a terminal status is final', OLD.id, OLD.status
            USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    f"""
    CREATE TRIGGER orchestrator_terminal_is_final BEFORE UPDATE ON orchestrator_execution
    FOR EACH ROW WHEN (OLD.status IN {TERMINAL} AND OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION orchestrator_terminal_is_final()
    """,
    # rows move through four updates in their life: half a page free lets them stay where they are
    "ALTER TABLE orchestrator_execution SET (fillfactor = 50)",
    # both grow by thousands in a second: the default, a fifth of the table, is far too late
    "ALTER TABLE orchestrator_execution SET (autovacuum_analyze_scale_factor = 0.02)",
    "ALTER TABLE orchestrator_executionevent SET (autovacuum_analyze_scale_factor = 0.02)",
)

SQLITE = (
    f"""
    CREATE TRIGGER orchestrator_terminal_is_final BEFORE UPDATE OF status ON orchestrator_execution
    FOR EACH ROW WHEN OLD.status IN {TERMINAL} AND OLD.status IS NOT NEW.status
    BEGIN
        SELECT RAISE(ABORT, 'a terminal status is final');
    END
    """,
)


def install(apps: Any, schema_editor: Any) -> None:
    statements = POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE
    for statement in statements:
        # None, not the default (): a `%` of PL/pgSQL is no placeholder
        schema_editor.execute(statement, params=None)


def remove(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            "DROP TRIGGER orchestrator_terminal_is_final ON orchestrator_execution"
        )
        schema_editor.execute("DROP FUNCTION orchestrator_terminal_is_final()")
        schema_editor.execute(
            "ALTER TABLE orchestrator_execution RESET (fillfactor, autovacuum_analyze_scale_factor)"
        )
    else:
        schema_editor.execute("DROP TRIGGER orchestrator_terminal_is_final")


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0001_initial")]

    operations = [migrations.RunPython(install, remove)]
