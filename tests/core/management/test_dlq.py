"""`manage.py dlq`: entries are listed, shown, opened and closed, dead letters drained."""

from __future__ import annotations

import base64
import io
import json
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.core import brokers, clock, cursors, messages, topology
from orchestrator.core.models import DLQEntry
from orchestrator.core.words import hex_lines
from tests import commands
from tests.factories import make_dlq_entry, make_execution, make_worker

pytestmark = pytest.mark.django_db

run, document, refused = commands.of("dlq")
items = partial(commands.items, "dlq")


def entry(number: int = 1, **values: Any) -> DLQEntry:
    known: dict[str, Any] = {
        "dlq_reason": "message_invalid",
        "detail": "not a task message of ours",
        "original_queue": "muster.execution.requests.queue",
        "fingerprint": str(number),
    }
    return make_dlq_entry(**known | values)


def listed(*arguments: str) -> list[str]:
    found = document("list", *arguments)
    return [item["dlq_entry_uuid"] for item in found["items"]]


def test_dlq_entries_are_listed_newest_first_page_by_page() -> None:
    execution = make_execution()
    ids = [str(entry(n).dlq_entry_uuid) for n in range(3)]
    letter = entry(9, about=execution, attempt=1, dlq_reason="queue_ttl_expired")
    about = str(letter.dlq_entry_uuid)
    first = document("list", "--limit", "2")
    assert [item["dlq_entry_uuid"] for item in first["items"]] == [about, ids[2]]
    assert listed("--cursor", first["next_cursor"]) == [ids[1], ids[0]]
    assert listed("--execution", str(execution.pk)) == [about]
    assert listed("--reason", "queue_ttl_expired") == [about]
    assert listed("--resolution-status", "cancelled") == []
    table = run("list")
    assert f"execution {execution.pk}" in table
    assert {about, *ids} <= set(table.split()), "every id can be pasted"
    assert "2026-03-01 12:00:00"[5:] in table
    assert "not a task message of ours" in table


def test_queue_says_where_letters_came_from_as_the_list_does() -> None:
    entry(1)
    entry(2, occurrences=1_200)
    for table in (run("list"), run("queue")):
        text = " ".join(table.split())
        assert "a letter from muster.execution.requests.queue" in text
        assert "1,200 identical letters" in text


def test_list_looks_at_a_bounded_number_of_rows_for_entries_without_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    poison = entry(1, dlq_reason="poison")
    for number in (2, 3):
        entry(number)
    said = run("list", "--reason", "poison")
    assert "No DLQ entry matches." in said
    _, _, cursor = said.strip().partition("Looked at 2. Older ones: --cursor ")
    page = document("list", "--reason", "poison", "--cursor", cursor)
    assert [item["dlq_entry_uuid"] for item in page["items"]] == [str(poison.dlq_entry_uuid)]
    assert page["next_cursor"] is None
    pending = ("--reason", "poison", "--resolution-status", "pending")
    assert listed(*pending) == [str(poison.dlq_entry_uuid)]


def test_entries_are_listed_and_counted_by_queue_and_by_what_they_are_about() -> None:
    known = {"subject_kind": "execution", "subject_name": "shop.sell", "dlq_reason": "poison"}
    letters = [entry(n, original_queue=f"worker.{n}", **known) for n in (1, 2)]
    letters.append(entry(3, original_queue="worker.2"))
    one, two, three = (str(letter.dlq_entry_uuid) for letter in letters)
    assert listed("--queue", "worker.2") == [three, two]
    assert listed("--about", "shop.sell") == [two, one]
    assert listed("--about", "shop.sell", "--queue", "worker.1") == [one]
    assert listed("--about", "shop") == []
    (sold, letter) = items("stats", "--by", "subject")
    assert (sold["subject_name"], sold["pending"]) == ("shop.sell", 2)
    assert (letter["dlq_reason"], letter["subject_kind"]) == ("message_invalid", "")
    queues = [row["original_queue"] for row in items("stats", "--by", "queue")]
    assert queues == ["worker.2", "worker.1", "worker.2"]
    assert len(items("stats", "--by", "queue", "--limit", "2")) == 2
    assert len(items("stats", "--by", "queue", "--about", "shop.sell")) == 2
    table = run("stats", "--by", "subject").splitlines()
    assert "about" in table[0].split()
    assert table[2].split()[:4] == ["poison", "execution", "shop.sell", "2"]
    assert table[3].split()[:4] == ["message_invalid", "a", "letter", "1"]
    assert "worker.1" in run("stats", "--by", "queue").split()
    assert "2026-03-01 12:00:00" in run("stats", "--by", "hour")
    message = "expected one of subject, namespace, queue, hour"
    assert message in refused("stats", "--by", "worker")


def test_entries_are_counted_by_namespace() -> None:
    entry(1, subject_kind="task", subject_name="shop/order/1.0.0", dlq_reason="manual_dlq")
    entry(2)
    rows = items("stats", "--by", "namespace")
    assert [(row["dlq_reason"], row["namespace_name"]) for row in rows] == [
        ("manual_dlq", "shop"),
        ("message_invalid", ""),
    ]
    table = run("stats", "--by", "namespace").splitlines()
    assert table[0].split()[:2] == ["reason", "namespace"]
    assert table[2].split()[:3] == ["manual_dlq", "shop", "1"]


def test_dlq_entry_is_opened_annotated_and_closed() -> None:
    execution = make_execution()
    opened = document("open", "--execution", str(execution.pk), "--detail", "looks odd")
    id = opened["dlq_entry_uuid"]
    assert (opened["dlq_reason"], opened["opened_by"][:3]) == ("manual_dlq", "cli")
    run("update", id, "--note", "asked ada", "--metadata", '{"ticket": 7}')
    closing = ("--resolution-status", "permanently_failed", "--note", "gone")
    (closed,) = items("update", id[:30], *closing)
    assert (closed["resolution_status"], closed["metadata"]) == (
        "permanently_failed",
        {"ticket": 7},
    )
    page = run("show", id)
    for text in ("permanently_failed", "asked ada", "gone", "looks odd", str(execution.pk)):
        assert text in page
    assert "a closed entry is final" in refused("update", id, "--note", "more")
    assert "Expected a resolution, a note or metadata" in refused("update", id)


def test_many_entries_are_closed_at_once() -> None:
    ids = [str(entry(n).dlq_entry_uuid) for n in range(3)]
    run("update", *ids, "--resolution-status", "cancelled")
    assert set(DLQEntry.objects.values_list("resolution_status", flat=True)) == {"cancelled"}


def test_entries_before_one_that_is_closed_already_are_shown() -> None:
    first, closed, last = (str(entry(n).dlq_entry_uuid) for n in range(3))
    run("update", closed, "--resolution-status", "cancelled")
    out = io.StringIO()
    with pytest.raises(CommandError, match="a closed entry is final"):
        call_command("dlq", "update", first, closed, last, "--note", "seen", "--json", stdout=out)
    (shown,) = json.loads(out.getvalue())["items"]
    assert (shown["dlq_entry_uuid"], shown["notes"][0]["text"]) == (first, "seen")
    assert refused("update", closed, last, "--note", "seen")


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
    page = run("show", str(one.dlq_entry_uuid))
    assert "worker.7.executions" in page
    assert "00 ff 68 65 6c 6c 6f" in page
    assert "..hello [red].[3" in page
    assert "\x1b" not in page
    found = document("show", str(one.dlq_entry_uuid))
    assert base64.b64decode(found["raw_body"]) == body
    assert found["x_death"] == [death]


def test_long_body_is_cut_off_and_says_so() -> None:
    lines = list(hex_lines(b"x" * 5_000))
    assert len(lines) == 257
    assert lines[-1] == "... 904 more bytes"
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("id", ["4711", "0", "x", "01a1fc03-4d96-75ec-8c37-9598e7ef21ba"])
def test_unknown_dlq_entry_is_one_line(id: str) -> None:
    complaint = refused("show", id)
    assert f"No DLQ entry has an id that begins with {id}" in complaint or "not an id" in complaint


def test_drain_prints_what_was_done(channel: Any) -> None:
    topology.declare(channel, [])
    channel.basic_publish(channel.prepare_message(b"odd"), topology.dead_letter_exchange(), "x")
    told = document("drain")
    assert told == {"settled": 0, "returned": 0, "stale": 0, "unreadable": 1, "answered": 0}
    assert "unreadable" in run("drain")


def test_drain_prints_each_outcome_with_its_number(channel: Any) -> None:
    now = clock.now()
    busy = make_execution("scheduled", worker=make_worker("busy", capacity=1, now=now), now=now)
    dispatch = messages.dispatch([busy.key], worker_id=busy.worker_id or 0)
    expired = dispatch.headers() | {"x-death": [{"reason": "expired"}]}
    topology.declare(channel, [])
    for body, headers in ((dispatch.body(), expired), (b"odd", {}), (b"odder", {})):
        message = channel.prepare_message(body, headers=headers)
        channel.basic_publish(message, topology.dead_letter_exchange(), "x")
    names, _, numbers, *_ = run("drain").splitlines()
    assert dict(zip(names.split(), numbers.split(), strict=True)) == {
        "settled": "0", "returned": "1", "stale": "0", "unreadable": "2", "answered": "0",
    }  # fmt: skip


def test_drain_without_a_broker_is_one_line(settings: Any) -> None:
    brokers.errors.cache_clear()
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    assert "Broker: not drained" in refused("drain")
    brokers.errors.cache_clear()


def test_drain_of_an_unknown_broker_names_the_known_ones() -> None:
    complaint = refused("drain", "--broker", "west")
    assert "broker 'west' is not in MUSTER_GATE_BROKERS: expected one of default" in complaint
