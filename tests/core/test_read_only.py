"""A database that answers and takes no writes: a standby, or one that somebody made read-only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, close_old_connections, connection

from orchestrator.access.models import ApiToken
from orchestrator.core import clock, database, reachability
from orchestrator.core.models import Execution
from tests.core.api.client import Caller
from tests.factories import make_action

pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]


@contextlib.contextmanager
def read_only() -> Iterator[None]:
    """New sessions may not write. Those that are open may: ours is closed."""
    name = connection.ops.quote_name(str(connection.settings_dict["NAME"]))

    def alter(what: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET transaction_read_only = off")
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute(f"ALTER DATABASE {name} {what}")
        connection.close()

    alter("SET default_transaction_read_only = on")
    try:
        yield
    finally:
        alter("RESET default_transaction_read_only")


def post(caller: Caller) -> Any:
    body = {"action_ref": "core.echo"}
    return caller.client.post("/api/v1/executions", body, content_type="application/json")


def test_request_is_503_and_accepted_again_when_writes_are(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_action()
    # as in an installation: a connection that works is kept
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    with read_only():
        answer = post(caller)
        assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
        assert answer["Retry-After"] == "5"
        assert answer.json()["type"] == "urn:muster:problem:database-unavailable"
        assert "read-only" in answer.json()["detail"]
        # the same session would stay read-only for ever: it does not outlive the request
        close_old_connections()
        assert connection.connection is None
    assert post(caller).status_code == 201
    assert Execution.objects.count() == 1


def test_who_only_reads_is_answered(caller: Caller) -> None:
    ApiToken.objects.update(last_used_at=clock.now() - timedelta(hours=1))
    with read_only():
        assert caller.client.get("/api/v1/executions").status_code == 200
        close_old_connections()
        assert caller.client.get("/api/v1/workers").status_code == 200


def test_process_is_not_ready(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: True))

    def status() -> int:
        monkeypatch.setattr(
            reachability, "database_writes", reachability.Probe(reachability._database_answers)
        )
        return caller.client.get("/health/ready").status_code

    assert status() == 200
    with read_only():
        assert status() == 503
    assert status() == 200


def test_services_that_begin_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    outage = contextlib.ExitStack()
    outage.enter_context(read_only())

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            outage.close()

    monkeypatch.setattr("orchestrator.core.database.time.sleep", sleep)
    database.wait_until_reachable()
    assert waited == [0.5, 1.0]


def test_error_is_called_what_postgresql_calls_it() -> None:
    with read_only(), pytest.raises(Exception, match="read-only") as error:
        make_action()
    assert database.sqlstate(error.value) == database.READ_ONLY
    assert database.sqlstate(OperationalError("no server was asked")) == ""
    with pytest.raises(IntegrityError) as refused:
        make_action(ref="core.echo", pack_id=4711)
    assert database.sqlstate(refused.value).startswith("23")
