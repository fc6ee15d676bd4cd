"""`manage.py workers` and `manage.py dlq`."""

from __future__ import annotations

import base64
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.core import clock, publisher, topology
from orchestrator.core.models import DLQEntry
from orchestrator.core.states import ExecutionStatus
from orchestrator.core.words import hex_lines
from tests.factories import NOW, make_execution, make_worker

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def entry(number: int = 1, **values: Any) -> DLQEntry:
    known: dict[str, Any] = {
        "dlq_reason": "message_invalid",
        "detail": "not a task message of ours",
        "original_queue": "muster.execution.requests.queue",
        "fingerprint": str(number),
        "dlq_timestamp": NOW,
    }
    return DLQEntry.objects.create(**known | values)


# --- workers -------------------------------------------------------------------------------------


def test_order_is_carried_out_and_shown_with_its_reason() -> None:
    worker = make_worker("w1", now=clock.now(), labels={"zone": "b"})
    told = run("workers", "cordon", "w1", "--reason", "new disk")
    assert "cordoned: new disk" in told
    assert "zone=b" in told
    assert max(map(len, told.splitlines())) <= 100
    drained = json.loads(run("workers", "drain", str(worker.pk), "--json"))
    assert (drained["status"], drained["cordoned"]) == ("draining", True)
    assert json.loads(run("workers", "uncordon", "w1", "--json"))["cordoned"] is False
    events = json.loads(run("workers", "events", "w1", "--json"))
    assert [event["kind"] for event in events] == [
        "uncordoned",
        "draining",
        "cordoned",
        "cordoned",
    ]
    assert {event["actor"].partition(":")[0] for event in events} == {"cli"}
    assert "new disk" in run("workers", "events", "w1")


def test_drain_that_waits_in_vain_fails() -> None:
    make_worker("w1", now=clock.now())
    with pytest.raises(CommandError, match=r"still there after 0\.01 s"):
        run("workers", "drain", "w1", "--wait", "0.01")


def test_worker_that_is_up_is_not_retired() -> None:
    make_worker("w1", now=clock.now())
    with pytest.raises(CommandError, match="w1 is up: drain it, or stop it"):
        run("workers", "retire", "w1")


def test_retired_workers_are_listed_only_when_asked_for() -> None:
    make_worker("w1", status="inactive", retired_at=NOW)
    assert json.loads(run("workers", "list", "--json")) == []
    assert "retired" in run("workers", "list", "--all")


def test_workers_are_listed_with_the_age_of_their_heartbeat_and_their_load() -> None:
    now = clock.now()
    fresh = make_worker("w1", now=now - timedelta(seconds=3))
    make_worker("w2", now=now - timedelta(seconds=600))
    make_worker("w3", status="inactive", heartbeat_at=None)
    make_execution(ExecutionStatus.RUNNING, worker=fresh)
    found = json.loads(run("workers", "list", "--json"))
    assert [(w["name"], w["heartbeat"], w["load"], w["eligible"]) for w in found] == [
        ("w1", "fresh", 1, True),
        ("w2", "stale", 0, False),
        ("w3", "never", 0, False),
    ]
    assert 3 <= found[0]["heartbeat_age_seconds"] < 60
    table = run("workers", "list")
    assert "10 min" in table
    assert max(map(len, table.splitlines())) <= 100


def test_no_worker_says_what_to_do() -> None:
    assert "manage.py worker --name" in run("workers", "list")
    assert json.loads(run("workers", "list", "--json")) == []


# --- dead letters --------------------------------------------------------------------------------


def listed(*arguments: str) -> list[str]:
    document = json.loads(run("dlq", "list", "--json", *arguments))
    return [item["dlq_entry_uuid"] for item in document["items"]]


def test_dlq_entries_are_listed_newest_first_page_by_page() -> None:
    execution = make_execution()
    ids = [str(entry(n).dlq_entry_uuid) for n in range(3)]
    letter = entry(
        9,
        subject_kind="execution",
        subject_id=execution.pk,
        attempt=1,
        dlq_reason="queue_ttl_expired",
    )
    about = str(letter.dlq_entry_uuid)
    first = json.loads(run("dlq", "list", "--json", "--limit", "2"))
    assert [item["dlq_entry_uuid"] for item in first["items"]] == [about, ids[2]]
    assert listed("--cursor", first["next_cursor"]) == [ids[1], ids[0]]
    assert listed("--execution", str(execution.pk)) == [about]
    assert listed("--reason", "queue_ttl_expired") == [about]
    assert listed("--resolution-status", "cancelled") == []
    table = run("dlq", "list")
    assert max(map(len, table.splitlines())) <= 100
    assert f"execution {str(execution.pk)[:18]}" in table


def test_dlq_entry_is_opened_annotated_and_closed() -> None:
    execution = make_execution()
    opened = json.loads(
        run("dlq", "open", "--execution", str(execution.pk), "--detail", "looks odd", "--json")
    )
    id = opened["dlq_entry_uuid"]
    assert (opened["dlq_reason"], opened["opened_by"][:3]) == ("manual_dlq", "cli")
    run("dlq", "update", id, "--note", "asked ada", "--metadata", '{"ticket": 7}')
    closing = ("--resolution-status", "permanently_failed", "--note", "gone")
    (closed,) = json.loads(run("dlq", "update", id[:30], *closing, "--json"))
    assert (closed["resolution_status"], closed["metadata"]) == (
        "permanently_failed",
        {"ticket": 7},
    )
    page = run("dlq", "show", id)
    for text in ("permanently_failed", "asked ada", "gone", "looks odd", str(execution.pk)):
        assert text in page
    with pytest.raises(CommandError, match="a closed entry is final"):
        run("dlq", "update", id, "--note", "more")
    with pytest.raises(CommandError, match="Expected a resolution, a note or metadata"):
        run("dlq", "update", id)


def test_many_entries_are_closed_at_once() -> None:
    ids = [str(entry(n).dlq_entry_uuid) for n in range(3)]
    run("dlq", "update", *ids, "--resolution-status", "cancelled")
    assert set(DLQEntry.objects.values_list("resolution_status", flat=True)) == {"cancelled"}


def test_dead_letter_is_shown_with_the_brokers_account_and_its_bytes() -> None:
    death = {
        "count": 2,
        "reason": "expired",
        "queue": "worker.7.executions",
        "exchange": "muster.executions",
        "routing-keys": ["execution.dispatch.worker.7"],
        "time": "2026-03-01T12:00:00+00:00",
    }
    body = b"\x00\xffhello [red]\x1b[31m"
    one = entry(x_death=[death], headers={"task": "x"}, raw_body=body)
    page = run("dlq", "show", str(one.dlq_entry_uuid))
    assert "worker.7.executions" in page
    assert "00 ff 68 65 6c 6c 6f" in page
    assert "..hello [red].[3" in page
    assert "\x1b" not in page
    document = json.loads(run("dlq", "show", str(one.dlq_entry_uuid), "--json"))
    assert base64.b64decode(document["raw_body"]) == body
    assert document["x_death"] == [death]


def test_long_body_is_cut_off_and_says_so() -> None:
    lines = list(hex_lines(b"x" * 5_000))
    assert len(lines) == 257
    assert lines[-1] == "... 904 more bytes"
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("id", ["4711", "0", "x", "01a1fc03-4d96-75ec-8c37-9598e7ef21ba"])
def test_unknown_dlq_entry_is_one_line(id: str) -> None:
    with pytest.raises(CommandError, match=f"No DLQ entry has an id that begins with {id}|no id"):
        run("dlq", "show", id)


def test_drain_prints_what_was_done(settings: Any, tmp_path: Path) -> None:
    settings.BROKER_URL = f"sqlitemq:///{tmp_path / 'broker.db'}"
    with publisher.connection() as link:
        channel: Any = link.default_channel
        topology.declare(channel, [])
        channel.basic_publish(channel.prepare_message(b"odd"), topology.dead_letter_exchange(), "x")
    told = json.loads(run("dlq", "drain", "--json"))
    assert told == {"settled": 0, "returned": 0, "stale": 0, "unreadable": 1}
    assert "unreadable" in run("dlq", "drain")


def test_drain_without_a_broker_is_one_line(settings: Any) -> None:
    publisher.errors.cache_clear()
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    with pytest.raises(CommandError, match="Broker: not drained") as error:
        run("dlq", "drain")
    assert "\n" not in str(error.value)
    publisher.errors.cache_clear()
