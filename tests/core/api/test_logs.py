"""Output through the API: in parts, and as a stream that can be resumed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from orchestrator.access.models import AuditEvent
from orchestrator.core import live_output
from orchestrator.core.api import logs
from orchestrator.core.live_output import Piece
from orchestrator.core.models import Action, Execution, Worker
from tests import principals
from tests.core.api.client import Caller, pointers
from tests.factories import NOW, make_execution
from tests.principals import given

pytestmark = pytest.mark.django_db


@pytest.fixture
def running(action: Action, worker: Worker) -> Execution:
    execution = make_execution("running", action=action, worker=worker)
    write(execution, 0, "hello ")
    write(execution, 6, "world\n")
    return execution


def write(execution: Execution, offset: int, text: str, stream: str = "stdout") -> None:
    piece = Piece(execution.pk, execution.attempt, stream, offset, text.encode())
    live_output.write([piece], now=NOW)


def events(response: Any, *, count: int | None = None) -> list[dict[str, Any]]:
    """The first events of a stream, or all."""

    async def collected() -> str:
        text = ""
        content: AsyncIterator[bytes] = response.streaming_content
        async for chunk in content:
            text += chunk.decode()
            if count is not None and text.count("event: ") >= count:
                break
        await content.aclose()  # type: ignore[attr-defined]
        return text

    read = []
    for block in async_to_sync(collected)().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            read.append({**fields, "data": json.loads(fields["data"])})
    return read


def test_part_of_the_output_and_where_to_read_on(caller: Caller, running: Execution) -> None:
    answer = caller.get(f"/executions/{running.pk}/logs").json()
    assert answer == {
        "execution_id": str(running.pk),
        "status": "running",
        "attempt": 1,
        "stream": "stdout",
        "offset": 0,
        "next_offset": 12,
        "dropped_bytes": 0,
        "text": "hello world\n",
        "is_over": False,
    }
    answer = caller.get(f"/executions/{running.pk}/logs", offset=12, stream="stdout").json()
    assert (answer["text"], answer["next_offset"], answer["is_over"]) == ("", 12, False)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"offset": -1}, "?offset"),
        ({"stream": "stdin"}, "?stream"),
        ({"attempt": 2}, "?attempt"),
        ({"ofset": 1}, "?ofset"),
    ],
)
def test_wrong_places_are_refused(
    caller: Caller, running: Execution, query: dict[str, Any], pointer: str
) -> None:
    answer = caller.get(f"/executions/{running.pk}/logs", **query)
    assert (answer.status_code, pointers(answer)) == (422, [pointer])


def test_unknown_execution_is_not_found(caller: Caller) -> None:
    for path in ("logs", "logs/stream"):
        unknown = "01976f3a-0000-7000-8000-000000000000"
        assert caller.get(f"/executions/{unknown}/{path}").status_code == 404


def test_url_with_a_password_is_redacted(caller: Caller, running: Execution) -> None:
    write(running, 0, "fetching https://me:hunter22@example.org/", stream="stderr")
    answer = caller.get(f"/executions/{running.pk}/logs", stream="stderr").json()
    assert "hunter22" not in answer["text"]


def test_stream_ends_with_the_execution(caller: Caller, action: Action, worker: Worker) -> None:
    execution = make_execution("completed", action=action, worker=worker)
    write(execution, 0, "done\n")
    response = caller.get(f"/executions/{execution.pk}/logs/stream")
    assert response["Content-Type"] == "text/event-stream"
    first, last = events(response)
    assert (first["event"], first["data"]["text"]) == ("output", "done\n")
    assert (last["event"], last["data"]["status"]) == ("end", "completed")


def test_stream_of_who_may_read_payloads_is_one_event_of_the_audit(
    action: Action, worker: Worker
) -> None:
    execution = make_execution("completed", action=action, worker=worker)
    write(execution, 0, "done\n")
    read = {}
    for name, more in (("masked", ()), ("seeing", (given("payloads.read"),))):
        reader = principals.caller(name, given("viewer"), *more)
        first, _ = events(reader.get(f"/executions/{execution.pk}/logs/stream"))
        read[name] = first["data"]["text"]
    assert read == {"masked": "***", "seeing": "done\n"}
    (event,) = AuditEvent.objects.filter(permission="payloads.read")
    assert (event.actor, event.object_id) == ("seeing", str(execution.pk))


def test_stream_goes_on_after_the_last_event_that_was_seen(
    caller: Caller, running: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_EVERY_SECONDS", 0)
    (first,) = events(caller.get(f"/executions/{running.pk}/logs/stream"), count=1)
    assert first["data"]["text"] == "hello world\n"
    write(running, 12, "and more\n")
    path = f"/api/v1/executions/{running.pk}/logs/stream"
    (second,) = events(caller.client.get(path, headers={"Last-Event-ID": first["id"]}), count=1)
    assert second["data"]["text"] == "and more\n"
    refused = caller.client.get(path, headers={"Last-Event-ID": "yesterday"})
    assert (refused.status_code, pointers(refused)) == (422, ["Last-Event-ID"])


def test_stream_that_lasts_long_ends_without_its_last_event(
    caller: Caller, running: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(logs, "LONGEST_SECONDS", 0.2)
    read = events(caller.get(f"/executions/{running.pk}/logs/stream"))
    assert [event["event"] for event in read] == ["output"]
    assert logs._open == set()


def test_more_followers_than_a_process_takes_are_told_to_come_again(
    caller: Caller, running: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_FOLLOWERS", 0)
    response = caller.get(f"/executions/{running.pk}/logs/stream")
    assert (response.status_code, response["Retry-After"]) == (429, "30")
