"""Who listens hears of what changes, and of nothing else; whatever is away."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed

from settings.connections import HEADER_SECONDS
from tests import servers
from tests.scenarios.installation import REPOSITORY, Installation
from tests.scenarios.listening import Stream, asked, heard, socket

NOBODY = "amqp://guest:guest@127.0.0.1:1//"
"""A broker that is away."""


@pytest.fixture(scope="module")
def url(shared: Installation) -> str:
    """Of an API process, which has streams too."""
    address = shared.serve()
    shared.wait_for(lambda: is_live(address), "the API does not listen")
    return address


@pytest.fixture(scope="module")
def token(shared: Installation) -> str:
    return shared.token("listener")


@pytest.fixture
def listen(url: str, token: str) -> Iterator[Callable[..., Stream]]:
    """Open streams that are closed at the end."""
    opened: list[Stream] = []

    def open_one(address: str = url, text: str = token, **options: Any) -> Stream:
        opened.append(Stream(address, text, **options))
        return opened[-1]

    yield open_one
    for stream in opened:
        stream.close()


def is_live(address: str) -> bool:
    try:
        return httpx.get(f"{address}/api/v1/health/live", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def note(muster: Installation) -> Any:
    """An execution that has ended."""
    id = muster.submit("core.noop")
    muster.wait_for_end(id)
    return id


def test_stream_tells_the_life_of_an_execution(
    shared: Installation, listen: Callable[..., Stream]
) -> None:
    stream = listen(type="execution.*", pack="core")
    other = listen(type="execution.*", pack="other")
    id = note(shared)
    stream.wait_for_type("execution.completed", id)
    types = stream.types_of(id)
    # a message tells of the acceptance, the history of the rest: they race
    of_history = [type for type in types if type != "execution.requested"]
    assert of_history[-2:] == ["execution.running", "execution.completed"]
    assert len(types) == len(set(types))
    (last,) = [one for one in stream.told if one["type"] == types[-1] and one["id"] == str(id)]
    assert last.keys() == {"seq", "type", "entity", "id", "pack", "owner", "state", "at"}
    assert (last["pack"], last["state"]) == ("core", "completed")
    assert other.told == []


def test_client_that_comes_back_gets_what_it_missed(
    shared: Installation, listen: Callable[..., Stream]
) -> None:
    stream = listen(type="execution.*")
    stream.wait_for_type("execution.completed", note(shared))
    stream.close()
    missed = note(shared)
    again = listen(type="execution.*", after=stream.last_id)
    again.wait_for_type("execution.completed", missed)
    assert again.gaps == 0
    assert len(again.types_of(missed)) == len(set(again.types_of(missed)))


def test_what_is_not_known_any_more_is_a_gap(listen: Callable[..., Stream]) -> None:
    stream = listen(after="another-notifier:7")
    stream.wait_for(lambda: stream.gaps == 1)
    assert stream.told == []


def test_revoked_token_ends_its_stream_and_socket_within_five_seconds(
    shared: Installation, url: str, listen: Callable[..., Stream]
) -> None:
    text = shared.token("brief")
    stream = listen(text=text)
    with socket(url, text) as link:
        shared.command("token", "revoke", "brief")
        revoked_at = time.monotonic()
        stream.wait_for(stream.has_ended.is_set)
        with pytest.raises(ConnectionClosed):
            heard(link)
        assert time.monotonic() - revoked_at <= 5.0


@pytest.mark.slow
def test_client_hears_only_of_what_it_may_see(
    shared: Installation, listen: Callable[..., Stream]
) -> None:
    texts = {}
    for name, grant in (
        ("of-core", ["executions.read", "--pack", "core"]),
        ("of-others", ["executions.read", "--pack", "billing"]),
        ("of-workers", ["workers.read"]),
    ):
        created = shared.command("token", "create", name, "--json")
        texts[name] = json.loads(created)["token"]
        shared.command("access", "grant", name, "stream.read")
        shared.command("access", "grant", name, *grant)
    streams = {name: listen(text=text) for name, text in texts.items()}
    id = note(shared)
    streams["of-core"].wait_for_type("execution.completed", id)
    shared.client.call("order", verb="cordon", worker="w2")
    streams["of-workers"].wait_for_type("worker.cordoned", "w2")
    shared.client.call("order", verb="uncordon", worker="w2")
    assert {one["entity"] for one in streams["of-core"].told} == {"execution"}
    assert {one["entity"] for one in streams["of-workers"].told} == {"worker"}
    assert streams["of-others"].told == []


def test_ticket_opens_one_stream_and_a_token_in_the_url_none(
    shared: Installation, url: str, token: str
) -> None:
    tickets = f"{url}/api/v1/stream/tickets"
    made = httpx.post(tickets, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    assert made.status_code == 201
    ticket = made.json()["ticket"]
    stream = Stream(url, ticket=ticket)
    stream.close()
    assert (stream.status, Stream(url, ticket=ticket).status) == (200, 401)
    assert Stream(url, token="", access_token=token).status == 400
    assert Stream(url).status == 401


def test_page_of_another_host_is_refused(url: str, token: str) -> None:
    def status(origin: str) -> int:
        stream = Stream(url, token, headers={"Origin": origin})
        stream.close()
        return stream.status

    assert (status("https://evil.example"), status(url)) == (403, 200)
    with pytest.raises(ConnectionClosed) as closed, socket(url, "not a token"):
        pass
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"type": "execution failed"}, "?type"),
        ({"entity": "planet"}, "?entity"),
        ({"tpye": "execution.*"}, "?tpye"),
    ],
)
def test_wrong_filter_is_refused_and_named(
    url: str, token: str, query: dict[str, str], pointer: str
) -> None:
    stream = Stream(url, token, **query)
    assert (stream.status, stream.problem["errors"][0]["pointer"]) == (422, pointer)


def test_socket_hears_what_it_subscribed_to(shared: Installation, url: str, token: str) -> None:
    with socket(url, token) as link:
        assert asked(link, type="ping") == {"type": "pong"}
        assert asked(link, type="subscribe", filter="nothing")["type"] == "error"
        assert asked(link, type="dance")["type"] == "error"
        wanted = "notification_type:execution.completed"
        assert asked(link, type="subscribe", filter=wanted) == {
            "type": "subscribed", "filter": wanted,
        }  # fmt: skip
        id = note(shared)
        said = heard(link)
        assert (said["type"], said["notification"]["id"]) == ("notification", str(id))
        assert said["notification"]["type"] == "execution.completed"
        assert asked(link, type="unsubscribe", filter=wanted)["type"] == "unsubscribed"
        assert asked(link, type="subscribe", filter=f"entity:execution:{note(shared)}")
        assert asked(link, type="subscribe", filter="user:nobody")["type"] == "subscribed"
        note(shared)
        assert asked(link, type="ping") == {"type": "pong"}, "and no notification before it"


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)  # it is about the server alone
@pytest.mark.slow
def test_silent_socket_stays_open_for_longer_than_headers_may_take(url: str, token: str) -> None:
    with socket(url, token) as link:
        with pytest.raises(TimeoutError):
            heard(link, within_seconds=HEADER_SECONDS + 2)
        assert asked(link, type="ping") == {"type": "pong"}


def test_command_prints_what_changes(shared: Installation) -> None:
    with subprocess.Popen(
        [sys.executable, "manage.py", "stream", "--type", "execution.*", "--json"],
        env=shared.environment, cwd=REPOSITORY, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        shared.wait_for(
            lambda: process.pid in shared.client.call("listeners_wanting"), "it does not listen"
        )
        id = note(shared)
        seen = []
        while "execution.completed" not in seen:
            line = json.loads(process.stdout.readline() or "null")
            assert line is not None, "it has ended"
            if line["id"] == str(id):
                seen.append(line["type"])
        process.terminate()
        assert process.wait(30) == 0
    assert "execution.running" in seen


@pytest.mark.parametrize("backend", ["servers"], indirect=True)  # with a login of its own
def test_every_client_of_two_notifiers_hears_everything(
    shared: Installation, token: str, listen: Callable[..., Stream]
) -> None:
    addresses = [shared.start_notifier(f"n{number}") for number in range(2)]
    for address in addresses:
        shared.wait_for(lambda at=address: is_live(at), "a notifier does not listen")  # type: ignore[misc]
    of_executions = [listen(address, type="execution.*") for address in addresses]
    of_all = [listen(address) for address in addresses]
    ids = [shared.submit("core.noop") for _ in range(20)]
    shared.client.call("order", verb="cordon", worker="w2")
    inquiry = _ask(shared)
    for stream in of_all:
        stream.wait_for_type("inquiry.pending", inquiry)
    shared.client.call("answer_inquiries", ids=[inquiry])
    shared.wait_for_ends(ids)
    for stream in of_executions + of_all:
        for id in ids:
            stream.wait_for_type("execution.completed", id)
            types = stream.types_of(id)
            assert len(types) == len(set(types)), "each once"
        assert stream.gaps == 0
    for stream in of_all:
        stream.wait_for_type("worker.cordoned", "w2")
        stream.wait_for_type("inquiry.responded", inquiry)
    shared.client.call("order", verb="uncordon", worker="w2")
    for stream in of_executions:
        assert not stream.types_of("w2")
        assert not stream.types_of(inquiry)


def _ask(shared: Installation) -> Any:
    """The id of a question that waits for an answer."""
    asking = shared.submit("core.ask", {"prompt": "Go?"})

    def asked() -> Any:
        rows = shared.client.call("open_inquiries")
        return next((row.id for row in rows if row.asked_by_execution_id == asking), None)

    return shared.wait_for(asked, "nobody was asked")


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_without_a_broker_changes_arrive_within_three_seconds(
    shared: Installation, token: str, listen: Callable[..., Stream]
) -> None:
    address = shared.start_notifier("deaf", BROKER_URL=NOBODY)
    shared.wait_for(lambda: is_live(address), "the notifier does not listen")
    stream = listen(address)
    began = time.monotonic()
    shared.client.call("order", verb="cordon", worker="w2")
    stream.wait_for_type("worker.cordoned", "w2")
    took = time.monotonic() - began
    shared.client.call("order", verb="uncordon", worker="w2")
    id = note(shared)
    ended = time.monotonic()
    stream.wait_for_type("execution.completed", id)
    assert took <= 3.0
    assert time.monotonic() - ended <= 3.0
    inquiry = _ask(shared)
    stream.wait_for_type("inquiry.pending", inquiry, within_seconds=3.0)
    shared.client.call("answer_inquiries", ids=[inquiry])
    stream.wait_for_type("inquiry.responded", inquiry, within_seconds=3.0)


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_no_statement_of_bulk_executions_notifies(
    shared: Installation, listen: Callable[..., Stream]
) -> None:
    stream = listen(type="execution.*")
    database = shared.environment["DATABASE_URL"]
    with psycopg.connect(database, autocommit=True) as session:
        name = session.info.dbname
        session.execute(f"ALTER DATABASE \"{name}\" SET log_statement = 'all'")
        session.execute("LISTEN muster_changed")
        ids = shared.submit_many([{} for _ in range(200)], "core.noop")
        shared.wait_for_ends(ids)
        stream.wait_for_type("execution.completed", ids[-1])
        assert list(session.notifies(timeout=1)) == []
        (noted,) = session.execute(
            "SELECT count(*) FROM notifications_change WHERE entity = 'execution'"
        ).fetchone() or (None,)
        assert noted == 0
        triggers = session.execute(
            "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger"
            " WHERE tgname LIKE 'notifications\\_tell\\_%' ORDER BY 1"
        ).fetchall()
    assert [table for (table,) in triggers] == [
        "automation_assignment", "automation_rule", "automation_trigger", "bulk_bulkorder",
        "inquiries_inquiry", "orchestrator_dlqentry", "orchestrator_worker", "policies_policy",
    ]  # fmt: skip
    postgres = shared.backend.postgres
    assert isinstance(postgres, servers.PostgresServer)
    assert "pg_notify" not in postgres.log()
    assert "NOTIFY" not in postgres.log().replace("LISTEN", "")


def test_services_end_in_time_although_streams_are_open(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    address = muster.start_notifier()
    muster.wait_for(lambda: is_live(address), "the notifier does not listen")
    stream = Stream(address, muster.token("last"))
    (service,) = muster.services
    service.process.terminate()
    assert service.exit_status(within_seconds=15) == 0
    stream.wait_for(stream.has_ended.is_set)
    stream.close()
    assert muster.client.call("listeners_wanting") == []


SHIP = {
    "ref": "scenario.heard",
    "action_ref": "core.echo",
    "parameters": {"text": "order {{ trigger.number }}"},
}


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)  # no server at all
@pytest.mark.slow
def test_one_stream_of_an_installation_on_one_machine_tells_it_all(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    port = servers.free_port()
    address = f"http://127.0.0.1:{port}"
    muster.start("up", "manage.py", "up", "--port", str(port), "--workers", "1", "--plain")
    muster.wait_for(lambda: is_live(address), "the API does not listen", within_seconds=240)
    stream = Stream(address, muster.token("all"))
    muster.client.call("install_rules", news=[SHIP])
    stream.wait_for_type("rule.created", SHIP["ref"])
    (event,) = muster.client.call("report_orders", numbers=[7])
    stream.wait_for_type("event.recorded", event)
    (last,) = muster.wait_for(lambda: ended_executions(stream), "no execution was heard to end")
    stream.close()

    types = [one["type"] for one in stream.told]
    for wanted in ("enforcement.created", "enforcement.executed", "execution.running"):
        assert wanted in types
    assert (last["pack"], last["owner"]) == ("core", f"rule:{SHIP['ref']}")


def ended_executions(stream: Stream) -> list[dict[str, Any]]:
    return [one for one in stream.told if one["type"] == "execution.completed"]
