"""Rights of the services: every table has some declared, and the SQL gives exactly those."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection, transaction
from django_celery_beat.models import PeriodicTask

from orchestrator.access import privileges
from orchestrator.access.privileges import credentials, postgresql, rabbitmq
from orchestrator.core import executions, frame, schedule, topology
from orchestrator.core.frame import NONE, READ, Rights, TableRights
from orchestrator.core.management.pages import topology as topology_page
from tests import commands, servers

run, document, refused = commands.of("privileges")

on_postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


# --- what apps declare ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_every_table_has_declared_rights() -> None:
    """A new table needs a `TableRights` in its app: nobody may use it until then."""
    assert postgresql.undeclared("default") == []


@pytest.mark.django_db
def test_table_without_declared_rights_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = postgresql.declared()
    declared.pop("workflows_step")
    monkeypatch.setattr(postgresql, "declared", lambda: declared)
    with pytest.raises(postgresql.UndeclaredTables, match=r"workflows_step\b"):
        postgresql.require_declared("default")


@pytest.mark.django_db
def test_declared_tables_and_columns_exist() -> None:
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor, include_views=True))
        assert postgresql.declared().keys() <= tables
        for table, rights in postgresql.declared().items():
            known = {
                column.name
                for column in connection.introspection.get_table_description(cursor, table)
            }
            for service in privileges.SERVICES:
                each = rights.of(service)
                parts = (each.read, each.change)
                named = [column for part in parts if not isinstance(part, bool) for column in part]
                assert {*named, *each.hidden} <= known, (table, service)


def test_table_is_declared_once() -> None:
    from django.utils.module_loading import import_string

    paths = frame.collect(lambda app: app.table_rights)
    tables = [each.table for path in paths for each in import_string(path)]
    assert len(tables) == len(set(tables))


HISTORIES = re.compile(r"(?<!^automation_)event$|transitionrecord$|auditseal$|admin_log$")


def test_nobody_may_change_history_and_only_executors_prune_it() -> None:
    histories = [each for table, each in postgresql.declared().items() if HISTORIES.search(table)]
    assert len(histories) >= 6
    for rights in histories:
        for service in privileges.SERVICES:
            each = rights.of(service)
            assert not each.change, (rights.table, service)
            assert not each.remove or service == "executor", (rights.table, service)


def test_no_service_may_remove_what_the_audit_has() -> None:
    audit = [
        each for table, each in postgresql.declared().items() if table.startswith("access_audit")
    ]
    assert not any(each.of(name).remove for each in audit for name in privileges.SERVICES)


def test_only_the_api_has_to_do_with_people_and_tokens() -> None:
    about_people = re.compile(
        r"^(auth_|django_session|django_admin_log|access_(apitoken|grant|loginrecord))"
    )
    names = Rights(read=("id", "username", "is_active"))
    # executors request executions for the owners of rules, with the grants that these have now
    owners = Rights(read=("id", "username", "is_active", "is_superuser"))
    more = {"auth_user": {names, owners}, "access_grant": {READ}}
    for table, rights in postgresql.declared().items():
        allowed = {NONE} | more.get(table, set())
        if about_people.search(table):
            assert {rights.executor, rights.worker, rights.beat} <= allowed, table


# --- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture
def roles(database: str) -> Iterator[list[str]]:
    """The roles of the services, which are removed again: roles belong to the whole server."""
    run("postgresql", "--apply")
    names = [privileges.login(service) for service in privileges.SERVICES]
    yield names
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP OWNED BY {name}")
            cursor.execute(f"DROP ROLE {name}")


def granted_to(role: str) -> dict[str, set[str]]:
    """The verbs that a role has for each table, on all or some of its columns."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT table_name, array_agg(DISTINCT privilege_type::text)
            FROM information_schema.column_privileges WHERE grantee = %s GROUP BY table_name
            UNION ALL
            SELECT table_name, array_agg(DISTINCT privilege_type::text)
            FROM information_schema.table_privileges WHERE grantee = %s GROUP BY table_name
            """,
            [role, role],
        )
        verbs: dict[str, set[str]] = {}
        for table, listed in cursor.fetchall():
            verbs.setdefault(table, set()).update(listed)
        return verbs


def wanted_of(rights: TableRights, service: str) -> set[str]:
    each = rights.of(service)
    flags = {"SELECT": each.read or each.hidden, "INSERT": each.add, "UPDATE": each.change}
    return {verb for verb, flag in {**flags, "DELETE": each.remove}.items() if flag}


@on_postgresql
def test_services_are_granted_what_is_declared_and_nothing_else(roles: list[str]) -> None:
    for service in privileges.SERVICES:
        wanted = {
            table: verbs
            for table, rights in postgresql.declared().items()
            if (verbs := wanted_of(rights, service))
        }
        assert granted_to(privileges.login(service)) == wanted, service


@on_postgresql
def test_services_make_no_tables(roles: list[str]) -> None:
    for role in roles:
        for kind in ("", "TEMPORARY "):
            with connection.cursor() as cursor:
                cursor.execute(f"SET ROLE {role}")
                try:
                    with pytest.raises(DatabaseError, match="permission denied"):
                        cursor.execute(f"CREATE {kind}TABLE mine (id int)")
                finally:
                    cursor.execute("RESET ROLE")


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    """A transaction with the rights of this role, of which nothing is kept."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL ROLE {role}")
        yield
        transaction.set_rollback(True)


@on_postgresql
def test_beat_may_give_its_rows_the_intervals_of_changed_settings(
    roles: list[str], settings: Any
) -> None:
    settings.MUSTER = replace(settings.MUSTER, maintenance_interval_seconds=7)
    with acting_as("muster_beat"):
        schedule.install(using="default")
        assert str(PeriodicTask.objects.get(name="muster.check_timeouts").interval) == (
            "every 7 seconds"
        )


@on_postgresql
def test_worker_may_ask_whether_it_has_recorded_an_end(roles: list[str]) -> None:
    with acting_as("muster_worker"):
        assert executions.recorded([(uuid4(), 1)], worker="w1") == set()


@on_postgresql
def test_what_was_granted_by_hand_is_taken_back(roles: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("GRANT ALL ON access_apitoken TO muster_worker")
        cursor.execute("GRANT UPDATE (priority) ON orchestrator_execution TO muster_worker")
    run("postgresql", "--apply")
    assert "access_apitoken" not in granted_to("muster_worker")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT has_column_privilege('muster_worker', 'orchestrator_execution', 'priority', "
            "'UPDATE'), has_column_privilege('muster_worker', 'orchestrator_execution', 'status', "
            "'UPDATE')"
        )
        assert cursor.fetchone() == (False, True)


@on_postgresql
def test_migration_renews_the_grants_of_views_and_new_tables(roles: list[str]) -> None:
    from django.core.management import call_command

    with connection.cursor() as cursor:
        cursor.execute("REVOKE ALL ON v_dlq_dashboard, workflows_task FROM muster_api")
    call_command("migrate", verbosity=0)
    granted = granted_to("muster_api")
    assert granted["v_dlq_dashboard"] == {"SELECT"}
    assert granted["workflows_task"] == {"SELECT", "INSERT", "UPDATE"}


@on_postgresql
def test_role_with_more_power_than_grants_is_refused_by_name(roles: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE muster_worker CREATEDB")
    assert "muster_worker may create databases" in refused("postgresql", "--apply")
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE muster_worker NOCREATEDB")
        cursor.execute("GRANT muster_api TO muster_worker")
    assert "muster_worker is a member of another role" in refused("postgresql", "--apply")


@on_postgresql
def test_printed_script_is_the_same_work_and_has_no_password(
    roles: list[str], database: str, tmp_path: Path
) -> None:
    credentials.create(
        tmp_path,
        database_url="postgresql://muster@db.internal/muster",
        broker_url="amqp://muster@mq.internal//",
    )
    script = run("postgresql", "--credentials", str(tmp_path))
    passwords = [login.password for each in credentials.read(tmp_path)
                 for login in (each.database, each.broker)]  # fmt: skip
    assert len(set(passwords)) == 2 * len(privileges.SERVICES)
    assert not [password for password in passwords if password in script]
    assert script.count("SCRAM-SHA-256$") == len(privileges.SERVICES)
    before = granted_to("muster_worker")
    with connection.cursor() as cursor:
        cursor.execute("REVOKE ALL ON orchestrator_execution FROM muster_worker")
        cursor.execute(script)
    assert granted_to("muster_worker") == before


@on_postgresql
def test_login_without_the_right_to_make_roles_is_told_what_to_do(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE poor_owner")
        cursor.execute("SET ROLE poor_owner")
        try:
            assert "Nothing was changed. Run it as the owner" in refused("postgresql", "--apply")
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute("DROP ROLE poor_owner")


@pytest.mark.django_db
def test_embedded_database_has_no_logins() -> None:
    assert "SQLite has no logins" in refused("postgresql")


# --- credentials ---------------------------------------------------------------------------------


URLS = {
    "database_url": "postgresql://muster:owner@db.internal:5433/muster?sslmode=verify-full",
    "broker_url": "amqps://muster:owner@mq.internal:5671/muster",
}


def test_files_have_urls_of_their_own_and_are_nobody_elses(tmp_path: Path) -> None:
    created = credentials.create(tmp_path / "new", **URLS)
    assert [path.name for path in created] == [
        "api.env", "executor.env", "beat.env", "worker.env", "notifier.env",
    ]  # fmt: skip
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    for path in created:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        database, broker = path.read_text().splitlines()
        assert re.fullmatch(
            rf"DATABASE_URL=postgresql://muster_{path.stem}:[\w-]{{32}}"
            r"@db\.internal:5433/muster\?sslmode=verify-full",
            database,
        )
        assert re.fullmatch(
            rf"BROKER_URL=amqps://muster_{path.stem}:[\w-]{{32}}@mq\.internal:5671/muster", broker
        )


def test_every_host_of_a_broker_gets_the_login_of_the_service(tmp_path: Path) -> None:
    hosts = "amqp://muster:owner@h1:5672/m;amqp://muster:owner@h2/m;amqp://h3/m"
    urls = URLS | {"broker_url": hosts}
    credentials.create(tmp_path, **urls)
    for service in privileges.SERVICES:
        broker = (tmp_path / f"{service}.env").read_text().splitlines()[1]
        login = rf"muster_{service}:[\w-]{{32}}"
        assert re.fullmatch(
            rf"BROKER_URL=amqp://({login})@h1:5672/m;amqp://\1@h2/m;amqp://\1@h3/m", broker
        )
    assert credentials.create(tmp_path, **urls) == []


def test_file_with_the_owners_login_at_another_host_gets_the_services(tmp_path: Path) -> None:
    credentials.create(tmp_path, **URLS)
    with (tmp_path / "api.env").open("a") as file:
        file.write("BROKER_URL=amqp://muster_api:x@h1/m;amqp://muster:owner@h2/m\n")
    assert [path.name for path in credentials.create(tmp_path, **URLS)] == ["api.env"]
    assert "owner" not in (tmp_path / "api.env").read_text()


def test_database_password_may_have_a_semicolon(tmp_path: Path) -> None:
    urls = URLS | {"database_url": "postgresql://muster:ow;ner@db.internal/muster"}
    credentials.create(tmp_path, **urls)
    database = (tmp_path / "api.env").read_text().splitlines()[0]
    assert re.fullmatch(
        r"DATABASE_URL=postgresql://muster_api:[\w-]{32}@db\.internal/muster", database
    )


def test_existing_files_keep_their_passwords(tmp_path: Path) -> None:
    credentials.create(tmp_path, **URLS)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    (tmp_path / "api.env").unlink()
    assert [path.name for path in credentials.create(tmp_path, **URLS)] == ["api.env"]
    after = {path: path.read_text() for path in tmp_path.iterdir()}
    assert [path.name for path in before if before[path] != after[path]] == ["api.env"]


def test_file_of_before_gets_the_login_and_keeps_what_else_is_in_it(tmp_path: Path) -> None:
    before = "# ours\nSECRET_KEY=abc\nDATABASE_URL=postgresql://muster:owner@db.internal/muster\n"
    (tmp_path / "api.env").write_text(before)
    (tmp_path / "api.env").chmod(0o644)
    credentials.create(tmp_path, **URLS)
    lines = (tmp_path / "api.env").read_text().splitlines()
    assert lines[:2] == ["# ours", "SECRET_KEY=abc"]
    assert [line.partition(":")[0] for line in lines[2:]] == [
        *("DATABASE_URL=postgresql", "BROKER_URL=amqps"),
    ]
    assert "owner" not in (tmp_path / "api.env").read_text()
    assert stat.S_IMODE((tmp_path / "api.env").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("api.env", "beat.env", "executor.env", "notifier.env", "worker.env"),
    ]


def test_passwords_may_come_from_the_environment(settings: Any) -> None:
    settings.SERVICE_SECRETS = {
        f"{service.upper()}_{server}_URL": f"{scheme}://muster_{service}:pw{number}@host/x"
        for number, service in enumerate(privileges.SERVICES)
        for server, scheme in (("DATABASE", "postgresql"), ("BROKER", "amqp"))
    }
    users = json.loads(run("rabbitmq", "--from-environment"))["users"]
    assert [user["name"] for user in users] == [
        f"muster_{service}" for service in privileges.SERVICES
    ]
    del settings.SERVICE_SECRETS["BEAT_BROKER_URL"]
    assert "the environment: beat: BROKER_URL: expected a URL" in refused(
        "rabbitmq", "--from-environment"
    )


def test_worker_with_a_file_of_its_own_has_its_own_broker_user(tmp_path: Path) -> None:
    credentials.create(tmp_path, **URLS, workers=["gpu/1"])
    found = {(each.service, each.worker): each for each in credentials.read(tmp_path)}
    own, shared = found["worker", "gpu/1"], found["worker", ""]
    assert own.database == shared.database
    assert (own.broker.user, shared.broker.user) == ("muster_worker_gpu/1", "muster_worker")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "DATABASE_URL: expected a URL with a user and a password"),
        ("DATABASE_URL=postgresql://db/muster\n", "expected a URL with a user and a password"),
        (
            "DATABASE_URL=postgresql://ada:x@db/m\nBROKER_URL=amqp://a:b@mq//\n",
            "DATABASE_URL: expected the user muster_api, found ada",
        ),
    ],
)
def test_wrong_file_is_named_with_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    credentials.create(tmp_path, **URLS)
    (tmp_path / "api.env").write_text(text)
    with pytest.raises(credentials.WrongCredentials, match=re.escape(fault)) as wrong:
        credentials.read(tmp_path)
    assert "api.env" in str(wrong.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    credentials.create(tmp_path, **URLS)
    (tmp_path / "beat.env").unlink()
    with pytest.raises(credentials.WrongCredentials, match=r"lacks beat\.env"):
        credentials.read(tmp_path)


def test_embedded_servers_have_no_credentials(tmp_path: Path) -> None:
    assert "DATABASE_URL names no server" in refused("credentials", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


# --- RabbitMQ ------------------------------------------------------------------------------------


def test_password_hash_is_that_of_rabbitmq() -> None:
    """The example of https://www.rabbitmq.com/docs/passwords."""
    salt = bytes.fromhex("908DC60A")
    expected = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert rabbitmq.password_hash("test12", salt=salt) == expected


def allows(pattern: str, *names: str) -> list[str]:
    return [name for name in names if re.search(pattern, name)]


QUEUES = [spec.name for spec in topology.shared_queues()]
OF_WORKERS = [spec.name for id in (7, 8, 71) for spec in topology.worker_queues(id)]


def test_worker_of_its_own_user_has_its_own_queues_alone() -> None:
    own = rabbitmq.permissions("worker", worker_id=7)
    names = [*QUEUES, *OF_WORKERS, "xworker.7.executions", "worker.7.executions.x"]
    mine = [spec.name for spec in topology.worker_queues(7)]
    assert allows(own.configure, *names) == mine
    assert allows(own.read, *names) == mine
    write, bind = own.topics[topology.executions_exchange()]
    keys = [
        *("execution.requested", "execution.completed", "execution.status.changed"),
        *("task.requested", "enforcement.created", "inquiry.responded", "bulk.ordered"),
        *(key(id) for id in (7, 8, 71) for key in (topology.dispatch_key, topology.cancel_key)),
    ]
    assert allows(write, *keys) == keys[:3]
    assert topology.notifications_exchange() in allows(own.write, *topology.exchange_purposes())
    assert allows(bind, *keys, "#") == [topology.dispatch_key(7), topology.cancel_key(7)]
    assert not allows(own.topics[topology.dead_letter_exchange()][0], *keys, "")


def test_api_publishes_requests_dispatches_and_cancels_and_reads_notifications_alone() -> None:
    api = rabbitmq.permissions("api")
    told = topology.notifications_exchange()
    assert allows(api.read, *QUEUES, *OF_WORKERS, *topology.exchange_purposes()) == [told]
    of_worker = [topology.dispatch_key(3), topology.cancel_key(3)]
    keys = [
        *("execution.requested", "execution.completed", "execution.status.changed"),
        *("task.requested", "enforcement.created", "inquiry.responded", "bulk.ordered"),
        *of_worker,
    ]
    write, bind = api.topics[topology.executions_exchange()]
    assert allows(write, *keys, "event.created", "#") == keys
    assert allows(bind, *keys) == []
    write, bind = api.topics[topology.events_exchange()]
    assert allows(write, *keys, "event.created", "#") == ["event.created"]
    assert allows(bind, "event.created") == []
    assert set(allows(api.write, *topology.exchange_purposes())) == {
        topology.executions_exchange(), topology.events_exchange(), told,
    }  # fmt: skip


def test_page_of_the_topology_shows_where_each_service_may_publish() -> None:
    exchanges = [*topology.exchange_purposes()]
    exchanges.remove(topology.dead_letter_exchange())
    published = topology_page.published()
    for service in ("api", "executor", "worker"):
        may = rabbitmq.permissions(service).write
        assert allows(may, *exchanges) == list(published[service])
    # with the executor's login
    assert set(published["sensor"]) <= set(published["executor"])


def test_notifier_reads_notifications_in_queues_of_its_own_and_tells_nobody() -> None:
    notifier = rabbitmq.permissions("notifier")
    own = topology.notifications_queue("host:7.ab12")
    told = topology.notifications_exchange()
    others = [*QUEUES, *OF_WORKERS, *topology.exchange_purposes()]
    assert allows(notifier.configure, own, *others) == [own]
    assert allows(notifier.write, own, *others) == [own]
    assert allows(notifier.read, own, *others) == [own, told]


def test_executor_declares_everything_of_this_installation_alone(settings: Any) -> None:
    executor = rabbitmq.permissions("executor")
    everything = [*QUEUES, *OF_WORKERS, *topology.exchange_purposes()]
    for pattern in (executor.configure, executor.write, executor.read):
        assert allows(pattern, *everything, "other.executions", "amq.default") == everything


@pytest.mark.parametrize(("namespace", "prefix"), [("muster", ""), ("blue", "blue.")])
def test_celerys_tools_need_what_the_settings_turn_on(
    settings: Any, namespace: str, prefix: str
) -> None:
    control = f"{prefix}celery.pidbox"
    of_control = [control, f"reply.{control}", f"w1@host.example.{control}"]
    names = [f"{prefix}celeryev", *of_control]
    off = replace(settings.MUSTER, namespace=namespace)
    for values, wanted in (
        ({}, []),
        ({"celery_events": True}, names[:1]),
        ({"remote_control": "inspect"}, of_control),
        ({"remote_control": "on", "celery_events": True}, names),
    ):
        settings.MUSTER = replace(off, **values)
        for service in ("executor", "worker"):
            given = rabbitmq.permissions(service)
            for pattern in (given.configure, given.write, given.read):
                assert allows(pattern, *names, "other.celery.pidbox", "celeryxpidbox") == wanted
        assert not allows(rabbitmq.permissions("api").write, *names)


@pytest.mark.django_db
def test_definitions_have_hashes_and_no_password(tmp_path: Path, settings: Any) -> None:
    credentials.create(tmp_path, **URLS, workers=["w1"])
    settings.BROKER_URL = URLS["broker_url"]
    text = run("rabbitmq", "--credentials", str(tmp_path))
    found = credentials.read(tmp_path)
    assert not [each for each in found if each.broker.password in text]
    written = json.loads(text)
    assert {user["name"] for user in written["users"]} == {each.broker.user for each in found}
    assert {each["vhost"] for each in written["permissions"]} == {"muster"}


def test_without_files_only_permissions_are_written() -> None:
    written = json.loads(run("rabbitmq"))
    assert written["users"] == []
    assert [each["user"] for each in written["permissions"]] == [
        f"muster_{service}" for service in privileges.SERVICES
    ]


def test_rights_of_a_service_are_none_by_default() -> None:
    rights = TableRights(table="new")
    assert {rights.of(service) for service in privileges.SERVICES} == {NONE}


@pytest.mark.slow
@pytest.mark.django_db
def test_definitions_are_sent_to_the_management_plugin(start_server: Any, settings: Any) -> None:
    port = servers.free_port()
    where = f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1\n"
    rabbit = start_server(
        servers.RabbitServer, plugins=("rabbitmq_management",), configuration=where
    )
    settings.BROKER_URL = rabbit.url
    settings.SERVICE_SECRETS = {
        f"{service.upper()}_{server}_URL": f"{scheme}://muster_{service}:made-up@host/x"
        for service in privileges.SERVICES
        for server, scheme in (("DATABASE", "postgresql"), ("BROKER", "amqp"))
    }
    url = f"http://127.0.0.1:{port}"
    assert "permitted" in run("rabbitmq", "--from-environment", "--apply", url)
    assert "muster_worker" in rabbit.control("list_topic_permissions")
    rabbit.control("authenticate_user", "muster_worker", "made-up")

    settings.BROKER_URL = rabbit.url.replace("guest:guest", "guest:wrong")
    assert "401" in refused("rabbitmq", "--from-environment", "--apply", url)
    assert "127.0.0.1:1:" in refused("rabbitmq", "--apply", "http://127.0.0.1:1")
