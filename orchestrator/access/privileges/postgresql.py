"""Roles of PostgreSQL: created by whoever may create roles, granted their rights by the owner.

Every statement may run again: what was granted before and is not declared any more is revoked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import connections, transaction
from django.utils.module_loading import import_string
from psycopg import sql

from orchestrator.access import privileges
from orchestrator.core import frame
from orchestrator.core.errors import MusterError
from orchestrator.core.frame import Rights, TableRights

log = structlog.get_logger(__name__)

POWERS = {
    "rolsuper": "is a superuser",
    "rolcreaterole": "may create roles",
    "rolcreatedb": "may create databases",
    "rolreplication": "may replicate",
    "rolbypassrls": "passes by row security",
}


class NotPostgresql(MusterError):
    """DATABASE_URL names no PostgreSQL: SQLite has no logins."""


class UndeclaredTables(MusterError):
    """An app brings tables and does not say which service may do what with them."""


class TooPowerful(MusterError):
    """A role of a service has more power than any grant gives."""


@dataclass(frozen=True)
class Database:
    """The names that the statements need, as they are in a database."""

    name: str
    schema: str
    columns: Mapping[str, Sequence[str]]
    """By table or view."""
    vendor_version: int = 0


def declared() -> dict[str, TableRights]:
    """The rights that all installed apps declare, by table."""
    paths = frame.collect(lambda app: app.table_rights)
    return {each.table: each for path in paths for each in import_string(path)}


def undeclared(using: str) -> list[str]:
    """The tables and views of all installed apps that nobody has declared rights to."""
    introspection = connections[using].introspection
    tables = introspection.django_table_names(include_views=True)
    unmanaged = [
        model._meta.db_table
        for app in frame.ours()
        for model in app.get_models(include_auto_created=True)
    ]
    return sorted({*tables, *unmanaged, "django_migrations"} - declared().keys())


def require_declared(using: str) -> None:
    """Raise UndeclaredTables, which names the tables."""
    if missing := undeclared(using):
        raise UndeclaredTables(
            f"No app declares who may do what with {', '.join(missing)}: "
            "name them in the app's `table_rights`, see orchestrator/core/frame.py"
        )


def inspect(using: str) -> Database:
    """Read the names of a database. Raises NotPostgresql."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        raise NotPostgresql
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), current_schema()")
        name, schema = cursor.fetchone()
        cursor.execute(
            """
            SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position)
            FROM information_schema.columns WHERE table_schema = %s GROUP BY table_name
            """,
            [schema],
        )
        return Database(name, schema, dict(cursor.fetchall()))


# --- statements ----------------------------------------------------------------------------------


def role_statements(roles: Iterable[str], verifiers: Mapping[str, str]) -> Iterator[sql.Composable]:
    """Create roles that do not exist, and set the passwords of those that have a verifier."""
    for role in roles:
        yield sql.SQL(
            "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {}) "
            "THEN CREATE ROLE {} LOGIN; END IF; END $$"
        ).format(sql.Literal(role), sql.Identifier(role))
        if verifier := verifiers.get(role):
            yield sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(role), sql.Literal(verifier)
            )


def grant_statements(database: Database, services: Collection[str]) -> Iterator[sql.Composable]:
    """Give these services what is declared, and take everything else from them."""
    schema, name = sql.Identifier(database.schema), sql.Identifier(database.name)
    yield sql.SQL("REVOKE CREATE ON SCHEMA {} FROM PUBLIC").format(schema)
    yield sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(name)
    rights = {table: each for table, each in declared().items() if table in database.columns}
    tables = sql.SQL(", ").join(sql.Identifier(database.schema, table) for table in rights)
    for service in services:
        role = sql.Identifier(privileges.login(service))
        yield sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(name, role)
        yield sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role)
        yield sql.SQL("REVOKE ALL ON {} FROM {}").format(tables, role)
        for table, each in rights.items():
            if granted := _granted(each.of(service), database.columns[table]):
                yield sql.SQL("GRANT {} ON {} TO {}").format(
                    granted, sql.Identifier(database.schema, table), role
                )


def _granted(rights: Rights, columns: Sequence[str]) -> sql.Composable | None:
    """Such as `SELECT, UPDATE (status, attempt)`."""
    read: bool | Sequence[str] = rights.read
    if rights.hidden:
        read = [column for column in columns if column not in rights.hidden]
    wanted = {"SELECT": read, "INSERT": rights.add, "UPDATE": rights.change}
    verbs = [
        _verb(verb, each) for verb, each in {**wanted, "DELETE": rights.remove}.items() if each
    ]
    return sql.SQL(", ").join(verbs) if verbs else None


def _verb(verb: str, columns: bool | Sequence[str]) -> sql.Composable:
    if columns is True:
        return sql.SQL(verb)
    named = sql.SQL(", ").join(map(sql.Identifier, columns or ()))
    return sql.SQL("{} ({})").format(sql.SQL(verb), named)


def script(statements: Iterable[sql.Composable], using: str) -> str:
    """The statements as one transaction, for psql."""
    connection = connections[using]
    connection.ensure_connection()
    lines = [f"{each.as_string(connection.connection)};" for each in statements]
    return "\n".join(["BEGIN;", *lines, "COMMIT;"])


# --- carrying them out ---------------------------------------------------------------------------


def verifier(password: str, role: str, using: str) -> str:
    """The verifier that PostgreSQL stores of a password, so that no statement and no log has the
    password."""
    connection = connections[using]
    connection.ensure_connection()
    session: Any = connection.connection
    encrypted: bytes = session.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    )
    return encrypted.decode()


def carry_out(statements: Iterable[sql.Composable], using: str) -> None:
    """Run all of them, or none."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def existing(using: str) -> list[str]:
    """The services that have a role already."""
    roles = {privileges.login(service): service for service in privileges.SERVICES}
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [list(roles)])
        found = {row[0] for row in cursor.fetchall()}
    return [service for role, service in roles.items() if role in found]


def require_powerless(roles: Collection[str], using: str) -> None:
    """Raise TooPowerful for a role that grants cannot limit: a superuser, a member of another role,
    the owner of a table."""
    powers = ", ".join(POWERS)
    with connections[using].cursor() as cursor:
        cursor.execute(
            f"""
            SELECT rolname, {powers},
                EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid),
                EXISTS (SELECT FROM pg_class WHERE relowner = pg_roles.oid)
            FROM pg_roles WHERE rolname = ANY(%s)
            """,  # noqa: S608 - made of constants
            [list(roles)],
        )
        faults = [*POWERS.values(), "is a member of another role", "owns tables"]
        for role, *has in cursor.fetchall():
            if found := [fault for fault, is_so in zip(faults, has, strict=True) if is_so]:
                raise TooPowerful(f"The role {role} {' and '.join(found)}: grants do not limit it")


def renew_grants(*, using: str, **_: object) -> None:
    """After migrations: new tables, and views, which are made again each time, have no grants."""
    if connections[using].vendor != "postgresql":
        return
    services = existing(using)
    if not services:
        return
    if missing := undeclared(using):
        log.warning("tables without declared rights: no service may use them", tables=missing)
    carry_out(grant_statements(inspect(using), services), using)
