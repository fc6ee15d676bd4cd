"""Each service with a login of its own, on real servers: all flows pass, and nothing else does."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import amqp
import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege, IntegrityConstraintViolation

from tests.scenarios.installation import SOON_LOST, Backend, Installation

pytestmark = pytest.mark.slow

HISTORIES = [
    "orchestrator_executionevent",
    "orchestrator_workerevent",
    "workflows_transitionrecord",
    "access_auditevent",
    "access_auditseal",
]


class Api:
    """The API of an installation, over HTTP."""

    def __init__(self, muster: Installation) -> None:
        url = muster.serve()
        token = muster.token("tests")
        self.http = httpx.Client(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        muster.ready()

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        response = self.http.request(method, path, json=body)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def run(self, action: str, parameters: dict[str, Any] | None = None, **more: Any) -> UUID:
        new = {"action_ref": action, "parameters": parameters or {}, **more}
        return UUID(self("POST", "/executions", new)["id"])


@pytest.fixture(scope="module")
def muster(servers_backend: Backend) -> Iterator[Installation]:
    """An installation whose every service runs with its own login."""
    installation = Installation(servers_backend, worker_queue_ttl_ms=5_000, **SOON_LOST)
    try:
        installation.start_executor()
        installation.start_worker("w1")
        installation.start_worker("w2")
        installation.start_beat()
        installation.ready()
        yield installation
        installation.check_accounts()
        refused = [
            f"{service.name}: {line}"
            for service in installation.services
            for line in service.log().splitlines()
            if "permission denied" in line or "ACCESS_REFUSED" in line
            if "executors declare what this user may not" not in line
        ]
        assert not refused, "\n".join(refused)
    finally:
        installation.close()


@pytest.fixture(scope="module")
def api(muster: Installation) -> Iterator[Api]:
    api = Api(muster)
    yield api
    api.http.close()


def session(muster: Installation, service: str) -> psycopg.Connection[Any]:
    """As `psql` with the login of a service."""
    return psycopg.connect(muster.login(service)["DATABASE_URL"], autocommit=True)


def changes_of(table: str) -> tuple[sql.Composed, sql.Composed]:
    """Statements that change all rows of a table."""
    statements = "UPDATE {} SET id = id", "DELETE FROM {}"
    update, delete = (sql.SQL(each).format(sql.Identifier(table)) for each in statements)
    return update, delete


# --- all flows pass ------------------------------------------------------------------------------


def test_every_session_of_a_service_has_its_login(muster: Installation, api: Api) -> None:
    api("GET", "/actions")
    database = muster.environment["DATABASE_URL"].rpartition("/")[2]
    with psycopg.connect(muster.environment["DATABASE_URL"]) as owner:
        rows = owner.execute(
            "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = %s", [database]
        ).fetchall()
    assert {f"scenario_{service}" for service in ("api", "executor", "worker", "beat")} <= {
        name for (name,) in rows
    }


def test_execution_runs_and_its_result_is_read(muster: Installation, api: Api) -> None:
    id = api.run("core.echo", {"message": "hello"})
    muster.wait_for_end(id)
    assert api("GET", f"/executions/{id}")["status"] == "completed"
    assert api("POST", "/executions/bulk", {"executions": [{"action_ref": "core.noop"}] * 20})


def test_failed_execution_is_tried_again(muster: Installation, api: Api) -> None:
    retry = {"max_attempts": 3, "backoff_base_ms": 10, "retry_on": ["action_failed"]}
    id = api.run("core.fail", {"message": "on purpose"}, retry=retry)
    assert muster.wait_for_end(id).status == "failed"
    assert muster.story(id).count("retry") == 2


def test_running_execution_is_cancelled(muster: Installation, api: Api) -> None:
    id = api.run("core.sleep", {"seconds": 300})
    muster.wait_for_status(id, "running")
    api("POST", f"/executions/{id}/cancel")
    assert muster.wait_for_end(id).status == "cancelled"


def test_execution_times_out(muster: Installation, api: Api) -> None:
    id = api.run("core.sleep", {"seconds": 300}, timeout_seconds=0.5)
    assert muster.wait_for_end(id).status == "timeout"


def test_task_runs_its_steps_and_is_cancelled_while_it_does(muster: Installation, api: Api) -> None:
    new = {"namespace": "examples", "name": "diamond", "version": "1.0.0", "context": {}}
    done = api("POST", "/tasks", new)["task_uuid"]
    muster.wait_for(
        lambda: api("GET", f"/tasks/{done}")["state"] == "complete", "the task does not end"
    )
    slow = {"namespace": "examples", "name": "slow", "version": "1.0.0", "context": {}}
    cancelled = api("POST", "/tasks", slow)["task_uuid"]
    api("DELETE", f"/tasks/{cancelled}")
    muster.wait_for(
        lambda: api("GET", f"/tasks/{cancelled}")["state"] == "cancelled", "it is not cancelled"
    )


VERBS: list[tuple[str, dict[str, Any]]] = [
    ("resolve_manually", {}),
    ("reset_for_retry", {}),
    (
        "complete_manually",
        {"completion_data": {"result": {"payment": "cheque", "amount": 1}}},
    ),
]


@pytest.mark.parametrize(("verb", "values"), VERBS, ids=[verb for verb, _ in VERBS])
def test_failed_step_is_repaired_and_its_task_goes_on(
    muster: Installation, api: Api, verb: str, values: dict[str, Any], tmp_path: Path
) -> None:
    items = [{"sku": "a", "count": 1, "price": 1}]
    context = {"order": verb, "items": items, "provider": str(tmp_path / "provider")}
    new = {"namespace": "examples", "name": "order_fulfilment", "version": "1.0.0",
           "context": context | {"card": "visa"}, "idempotency_key": verb}  # fmt: skip
    path = f"/tasks/{api('POST', '/tasks', new)['task_uuid']}"
    muster.wait_for(lambda: api("GET", path)["state"] == "blocked_by_failures", "it is not blocked")
    (tmp_path / "provider").touch()
    steps = api("GET", f"{path}/workflow_steps")["items"]
    (failed,) = [step for step in steps if step["current_state"] == "error"]
    change = {"action_type": verb, "reason": "a test", **values}
    api("PATCH", f"{path}/workflow_steps/{failed['step_uuid']}", change)
    goal = {"complete", "blocked_by_failures"} if verb == "resolve_manually" else {"complete"}
    muster.wait_for(lambda: api("GET", path)["state"] in goal, "it does not go on")


def test_accounts_tokens_and_keys_are_kept(muster: Installation, api: Api) -> None:
    account = f"/identities/{api('POST', '/identities', {'name': 'walker'})['id']}"
    grant = api("POST", f"{account}/grants", {"gives": "viewer", "scope": {"packs": ["core"]}})
    token = f"/tokens/{api('POST', '/tokens', {'name': 'walk', 'owner': 'service:walker'})['id']}"
    api("POST", f"{token}/rotate", {"overlap_seconds": 60})
    api("DELETE", token)
    api("DELETE", f"{account}/grants/{grant['id']}")
    api("POST", f"{account}/disable")
    api("POST", f"{account}/enable")
    asked = {"reference": "core/walk", "value": "the first value"}
    refused = api.http.post("keys", json=asked)
    assert (refused.status_code, refused.json()["title"]) == (503, "The key ring cannot be used")
    muster.command("keys", "ring", "--add")
    api("POST", "/keys", asked)
    api("POST", "/keys/core/walk/rotate", {"value": "the second value"})
    api("DELETE", "/keys/core/walk")


def test_worker_is_cordoned_and_an_execution_is_investigated(
    muster: Installation, api: Api
) -> None:
    worker = f"/workers/{muster.worker('w2').id}"
    for order in ("cordon", "uncordon"):
        api("POST", f"{worker}/{order}", {"reason": "a test"})
    id = api.run("core.fail", {"message": "on purpose"})
    muster.wait_for_end(id)
    asked = {"subject_kind": "execution", "subject_id": str(id), "detail": "why?"}
    entry = f"/dlq/entry/{api('POST', '/dlq', asked)['dlq_entry_uuid']}"
    api("PATCH", entry, {"note": "seen", "metadata": {"ticket": 7}})
    api("PATCH", entry, {"resolution_status": "cancelled", "note": "it was a test"})


def test_every_list_is_shown(muster: Installation, api: Api) -> None:
    """And each document that needs no id."""
    paths = api("GET", "/openapi.json")["paths"]
    listed = [path for path, verbs in paths.items() if "get" in verbs and "{" not in path]
    assert len(listed) >= 12
    for path in listed:
        api("GET", path.removeprefix("/api/v1"))


def test_dead_letter_becomes_an_entry_that_is_closed(muster: Installation, api: Api) -> None:
    (queue, *_), _ = muster.client.call("queues_of_worker", id=muster.worker("w1").id)
    muster.client.call("publish", body=b"garbage", queue=queue)
    entry = muster.wait_for(
        lambda: [e for e in muster.dlq_entries() if e.dlq_reason == "message_invalid"],
        "no entry for garbage",
    )[0]
    closed = {"resolution_status": "manually_resolved", "note": "it was a test"}
    api("PATCH", f"/dlq/entry/{entry.dlq_entry_uuid}", closed)


def test_work_of_a_killed_worker_ends_and_the_worker_is_retired(
    muster: Installation, api: Api
) -> None:
    doomed = muster.start_worker("doomed")
    muster.wait_until_active("doomed")
    worker = muster.worker("doomed")
    id = api.run("core.sleep", {"seconds": 300}, worker_id=worker.id)
    muster.wait_for_status(id, "running")
    doomed.kill_tree()
    assert muster.wait_for_end(id).status == "abandoned"
    muster.wait_for(lambda: muster.worker("doomed").gone_at, "nobody noticed")
    muster.services.remove(doomed)
    queues = [name for name, *_ in muster.client.call("queues_of_worker", id=worker.id)]
    # killed before it acknowledged, it leaves the dispatch to expire: until then it is refused
    muster.wait_for(
        lambda: not any(muster.client.call("queue_length", name=name) for name in queues),
        "what it had not acknowledged did not expire",
    )
    assert api("POST", f"/workers/{worker.id}/retire", {"reason": "test"})["retired_at"]
    for name in queues:
        assert muster.client.call("queue_length", name=name) is None


def test_worker_that_was_killed_settles_its_work_when_it_comes_back(
    muster: Installation, api: Api
) -> None:
    first = muster.start_worker("back")
    muster.wait_until_active("back")
    ids = [api.run("core.sleep", {"seconds": 300}, worker_id=muster.worker("back").id)]
    muster.wait_for_status(ids[0], "running")
    first.kill_tree()
    muster.services.remove(first)
    second = muster.start_worker("back")
    assert muster.wait_for_end(ids[0]).status == "abandoned"
    muster.wait_until_active("back")
    second.signal(signal.SIGTERM)
    assert second.exit_status() == 0


def test_deleted_queues_are_there_again(muster: Installation, api: Api) -> None:
    ids = [muster.worker(name).id for name in ("w1", "w2")]
    for id in ids:
        muster.client.call("delete_worker_queues", id=id)
    muster.wait_for(
        lambda: all(muster.client.call("consumers", worker_ids=ids)), "queues are not consumed"
    )
    assert muster.wait_for_end(api.run("core.noop")).status == "completed"


def test_deleted_exchanges_are_there_again(muster: Installation, api: Api) -> None:
    ids = [muster.worker(name).id for name in ("w1", "w2")]
    muster.client.call("delete_exchange", name="scenario.executions")
    muster.wait_for(
        lambda: muster.client.call("is_whole", worker_ids=ids), "the topology is not whole"
    )
    assert muster.wait_for_end(api.run("core.noop")).status == "completed"


@pytest.fixture
def staff(muster: Installation, api: Api) -> Iterator[httpx.Client]:
    """Somebody who is logged in to the admin."""
    muster.environment |= {"DJANGO_SUPERUSER_PASSWORD": "walk the dog"}
    muster.command("createsuperuser", "--noinput", "--username", "ada", "--email", "")
    base = str(api.http.base_url).removesuffix("api/v1/")
    with httpx.Client(base_url=base, follow_redirects=True, timeout=60) as staff:
        staff.get("/admin/login/")
        response = _post(staff, "/admin/login/", username="ada", password="walk the dog")
        assert "Log out" in response.text
        yield staff


def _post(staff: httpx.Client, path: str, **form: str) -> httpx.Response:
    token = {"csrfmiddlewaretoken": staff.cookies["csrftoken"]}
    response = staff.post(path, data=token | form)
    assert response.is_success, f"{path}: {response.status_code}"
    errors = re.findall(r'<ul class="errorlist.*?</ul>', response.text, re.DOTALL)
    assert not errors, f"{path}: {errors}"
    return response


def test_admin_shows_every_page_and_takes_every_form(
    muster: Installation, api: Api, staff: httpx.Client
) -> None:
    muster.wait_for_end(api.run("core.noop"))
    found = set(re.findall(r'href="(/admin/[a-z_]+/[a-z_]+/)"', staff.get("/admin/").text))
    assert len(found) >= 15
    pages = set()
    for path in sorted(found):
        listing = staff.get(path)
        assert listing.is_success, path
        pages |= set(re.findall(rf'href="({path}[^"?]+/change/)', listing.text)[:2])
    assert len(pages) >= 10
    for path in sorted(pages):
        assert staff.get(path).is_success, path

    secret = "a sentence that nobody knows"
    _post(
        staff,
        "/admin/auth/user/add/",
        username="bob",
        password1=secret,
        password2=secret,
        usable_password="true",
    )
    _post(staff, "/admin/access/apitoken/add/", name="of ada", days="30")
    none = {f"periodictask_set-{name}_FORMS": "0" for name in ("TOTAL", "INITIAL")}
    interval = "/admin/django_celery_beat/intervalschedule/add/"
    _post(staff, interval, every="7", period="seconds", **none)
    with psycopg.connect(muster.environment["DATABASE_URL"]) as owner:
        ids = owner.execute("SELECT id FROM orchestrator_action WHERE ref = 'core.echo'")
        (echo,) = ids.fetchall()[0]
    for button in ("disable", "enable"):
        _post(staff, f"/admin/orchestrator/action/{echo}/{button}/", _form_submitted="True")
    events = json.loads(muster.command("audit", "list", "--json"))["items"]
    assert {"session.login", "access.manage", "tokens.create", "admin.action"} <= {
        event["permission"] for event in events
    }


def test_audit_of_all_this_is_sealed_and_holds(muster: Installation, api: Api) -> None:
    api.run("core.noop")
    muster.wait_for(lambda: _unsealed(muster) == 0, "nobody seals the audit")
    found = json.loads(muster.command("audit", "verify", "--json"))
    assert found["fault"] == ""
    assert found["verified"] > 0


def _unsealed(muster: Installation) -> int:
    with psycopg.connect(muster.environment["DATABASE_URL"]) as owner:
        rows = owner.execute(
            "SELECT (SELECT count(*) FROM access_auditevent), (SELECT count(*) FROM "
            "access_auditseal)"
        ).fetchall()
    events, seals = rows[0]
    return int(events - seals) if events else 1


# --- nothing else passes -------------------------------------------------------------------------

SECRETS = [
    "access_apitoken",
    "access_grant",
    "auth_user",
    "auth_user_groups",
    "django_session",
    "workflows_task",
]
REFUSED_TO_WORKERS = [
    *map("TABLE {}".format, [*SECRETS, "access_auditevent", "access_auditseal"]),
    "SELECT password FROM auth_user",
    "SELECT email FROM auth_user",
    "SELECT result FROM orchestrator_execution",
    "SELECT reason FROM orchestrator_workerevent",
    "SELECT detail FROM orchestrator_dlqentry",
    "UPDATE orchestrator_execution SET parameters = '{}'",
    "UPDATE orchestrator_execution SET requested_by = 'ada'",
    "UPDATE orchestrator_worker SET name = 'w9'",
    "UPDATE orchestrator_worker SET cordoned = true",
    "UPDATE orchestrator_action SET entry_point = '[]'",
    "INSERT INTO orchestrator_pack (name) VALUES ('mine')",
    "DELETE FROM orchestrator_execution",
    "DELETE FROM orchestrator_worker",
    "TRUNCATE orchestrator_tally",
    "CREATE TABLE mine (id int)",
    "SELECT pg_read_file('/etc/passwd')",
]


@pytest.mark.parametrize("statement", REFUSED_TO_WORKERS)
def test_worker_is_refused(muster: Installation, statement: str) -> None:
    with session(muster, "worker") as psql, pytest.raises(InsufficientPrivilege):
        psql.execute(statement)


@pytest.mark.parametrize("service", ["api", "executor", "worker", "beat", "notifier"])
@pytest.mark.parametrize("table", HISTORIES)
def test_no_service_changes_history(
    muster: Installation, api: Api, service: str, table: str
) -> None:
    muster.wait_for_end(api.run("core.noop"))
    may_prune = service == "executor" and not table.startswith("access_")
    update, delete = changes_of(table)
    with session(muster, service) as psql:
        with pytest.raises(InsufficientPrivilege):
            psql.execute(update)
        # who may prune has the right, and the trigger still asks for more: see `finality.pruning`
        with pytest.raises(IntegrityConstraintViolation if may_prune else InsufficientPrivilege):
            psql.execute(delete)


@pytest.mark.parametrize("table", HISTORIES)
def test_owner_changes_no_history_who_does_not_lift_its_triggers(
    muster: Installation, api: Api, table: str
) -> None:
    muster.wait_for_end(api.run("core.noop"))
    with psycopg.connect(muster.environment["DATABASE_URL"], autocommit=True) as owner:
        rows = owner.execute(sql.SQL("SELECT FROM {}").format(sql.Identifier(table)))
        assert rows.rowcount, f"{table} is empty: nothing could be changed"
        for statement in changes_of(table):
            with pytest.raises(IntegrityConstraintViolation, match="is final"):
                owner.execute(statement)


def test_api_changes_no_result_that_is_final(muster: Installation, api: Api) -> None:
    id = api.run("core.noop")
    muster.wait_for_end(id)
    with session(muster, "api") as psql:
        with pytest.raises(IntegrityConstraintViolation, match="is final"):
            psql.execute("UPDATE orchestrator_execution SET result = '{}' WHERE id = %s", [id])
        with pytest.raises(InsufficientPrivilege):
            psql.execute("DELETE FROM orchestrator_execution WHERE id = %s", [id])


# --- RabbitMQ ------------------------------------------------------------------------------------


def link_of(muster: Installation, service: str) -> amqp.Connection:
    """A connection with the broker's user of a service."""
    return link(muster.login(service)["BROKER_URL"])


def link(broker_url: str) -> amqp.Connection:
    url = urlsplit(broker_url)
    return amqp.Connection(
        f"{url.hostname}:{url.port}",
        userid=url.username or "",
        password=unquote(url.password or ""),
        virtual_host=url.path.removeprefix("/"),
        read_timeout=60,
        write_timeout=60,
    )


SHARED = ["execution.requests.queue", "execution.completed.queue", "tasks.queue", "dlx.queue"]


@pytest.mark.parametrize("queue", [*SHARED, "maintenance.queue"])
@pytest.mark.parametrize("service", ["worker", "api", "beat", "notifier"])
def test_shared_queues_are_not_read_purged_or_deleted(
    muster: Installation, service: str, queue: str
) -> None:
    name = f"scenario.{queue}"
    attempts: list[Callable[[amqp.Channel], Any]] = [
        lambda channel: channel.basic_get(name),
        lambda channel: channel.queue_purge(name),
        lambda channel: channel.basic_consume(name),
    ]
    if (service, queue) != ("beat", "maintenance.queue"):
        attempts.append(lambda channel: channel.queue_delete(name))
    for attempt in attempts:
        with link_of(muster, service) as connection, pytest.raises(amqp.AccessRefused):
            attempt(connection.channel())


PUBLISHED = [
    ("worker", "scenario.executions", "execution.dispatch.worker.1"),
    ("worker", "scenario.executions", "execution.cancel.worker.1"),
    ("worker", "scenario.executions", "task.requested"),
    ("worker", "scenario.dlx", "execution.dispatch.worker.1"),
    ("worker", "scenario.dlx", ""),
    ("worker", "", "scenario.maintenance.queue"),
    ("api", "scenario.dlx", "execution.requested"),
    ("api", "", "scenario.maintenance.queue"),
    ("beat", "scenario.executions", "execution.requested"),
    ("notifier", "scenario.executions", "execution.requested"),
    ("notifier", "scenario.notifications", ""),
]


@pytest.mark.parametrize(("service", "exchange", "routing_key"), PUBLISHED)
def test_message_is_not_forged(
    muster: Installation, service: str, exchange: str, routing_key: str
) -> None:
    with link_of(muster, service) as connection:
        channel = connection.channel()
        channel.confirm_select()
        with pytest.raises(amqp.AccessRefused):
            channel.basic_publish_confirm(amqp.Message("forged"), exchange, routing_key)


def test_worker_with_a_user_of_its_own_runs_and_has_its_own_queues_alone(
    muster: Installation, api: Api, tmp_path: Path
) -> None:
    muster.command("privileges", "credentials", str(tmp_path), "--worker", "own")
    document = json.loads(muster.command("privileges", "rabbitmq", "--credentials", str(tmp_path)))
    # the other users are shared with other installations of these tests
    name = "scenario_worker_own"
    exchanges = document.pop("exchanges")
    mine = {
        what: [row for row in rows if name in (row.get("name"), row.get("user"))]
        for what, rows in document.items()
    }
    assert all(mine.values())
    mine["exchanges"] = exchanges
    rabbit = muster.backend.rabbit
    assert rabbit is not None
    path = rabbit.directory / "own.json"
    path.write_text(json.dumps(mine))
    rabbit.control("import_definitions", str(path))

    values = dict(
        line.split("=", 1) for line in (tmp_path / "worker-own.env").read_text().splitlines()
    )
    service = muster.start_worker("own", BROKER_URL=values["BROKER_URL"])
    muster.wait_for(lambda: muster.worker("own").status == "active", "it is not up")
    worker = muster.worker("own")
    id = api.run("core.echo", {"message": "mine"}, worker_id=worker.id)
    assert muster.wait_for_end(id).status == "completed"

    (own, *_), _ = muster.client.call("queues_of_worker", id=worker.id)
    (others, *_), _ = muster.client.call("queues_of_worker", id=muster.worker("w1").id)
    for attempt in (
        lambda channel: channel.queue_purge(others),
        lambda channel: channel.basic_get(others),
        lambda channel: channel.basic_consume(others),
        lambda channel: channel.queue_delete(others),
        lambda channel: channel.queue_bind(
            own, "scenario.executions", f"execution.dispatch.worker.{muster.worker('w1').id}"
        ),
    ):
        with link(values["BROKER_URL"]) as connection, pytest.raises(amqp.AccessRefused):
            attempt(connection.channel())
    with link(values["BROKER_URL"]) as connection:
        connection.channel().queue_purge(own)
    service.signal(signal.SIGTERM)
    assert service.exit_status() == 0


def test_worker_cannot_listen_to_what_is_not_for_workers(muster: Installation) -> None:
    queue = muster.client.call("queues_of_worker", id=1)[0][0]
    for key in ("#", "execution.#", "execution.requested"):
        with link_of(muster, "worker") as connection, pytest.raises(amqp.AccessRefused):
            connection.channel().queue_bind(queue, "scenario.executions", key)
    for name in ("mine", "scenario.mine"):
        with link_of(muster, "worker") as connection, pytest.raises(amqp.AccessRefused):
            connection.channel().queue_declare(name)
        with link_of(muster, "worker") as connection, pytest.raises(amqp.AccessRefused):
            connection.channel().exchange_declare(name, "topic")
