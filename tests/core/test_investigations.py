"""Entries: opened with or without what they are about, annotated, closed once and for all."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from orchestrator.core import investigations
from orchestrator.core.models import DLQEntry, DLQEntryEvent, Tally
from orchestrator.core.models.dead_letters import COUNTED_BY, Grouping
from orchestrator.core.states import ExecutionStatus
from tests.factories import NOW, make_action, make_execution
from tests.races import at_once

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
Reason, Resolution = DLQEntry.Reason, DLQEntry.Resolution
LATER = NOW + timedelta(hours=3)


def open_one(**values: Any) -> DLQEntry:
    known: dict[str, Any] = {"dlq_reason": Reason.QUEUE_TTL_EXPIRED, "dlq_timestamp": NOW}
    entry = DLQEntry(**known | values)
    return investigations.keep([entry])[0]


def close(
    entry: DLQEntry, resolution: DLQEntry.Resolution = Resolution.MANUALLY_RESOLVED
) -> DLQEntry:
    return investigations.close(
        entry.dlq_entry_uuid, resolution=resolution, now=LATER, actor="ada", note="seen"
    )


def tallied(metric: str) -> dict[tuple[str, str], float]:
    rows = Tally.objects.filter(metric=metric).values_list("reason", "part", "value")
    return {(reason, part): value for reason, part, value in rows}


# --- opening -------------------------------------------------------------------------------------


def test_entry_for_an_execution_keeps_it_as_it_is_without_its_secrets() -> None:
    action = make_action("core.pay", parameters_schema={"properties": {"pin": {"secret": True}}})
    execution = make_execution(
        S.SCHEDULED, action=action, parameters={"pin": 1234, "api_key": "k", "n": 5}
    )
    entry = investigations.open_manually(
        "execution", execution.pk, detail="odd", now=NOW, actor="ada"
    )
    row = DLQEntry.objects.get()
    assert row.pk == entry.pk
    assert (row.dlq_reason, row.detail, row.opened_by) == ("manual_dlq", "odd", "ada")
    assert (row.subject_id, row.attempt, row.original_state) == (execution.pk, 1, "scheduled")
    assert row.snapshot["parameters"] == {"pin": "***", "api_key": "***", "n": 5}
    assert (row.resolution_status, row.notes, row.metadata) == ("pending", [], {})
    assert row.dlq_entry_uuid.version == 7
    execution.refresh_from_db()
    assert execution.status == "scheduled"


def test_one_pending_manual_entry_for_an_execution_and_any_number_closed() -> None:
    execution = make_execution()
    for _ in range(3):
        entry = investigations.open_manually(
            "execution", execution.pk, detail="d", now=NOW, actor="ada"
        )
        with pytest.raises(investigations.AlreadyOpen, match="pending entry for execution"):
            investigations.open_manually(
                "execution", execution.pk, detail="d", now=NOW, actor="bob"
            )
        close(entry)
    assert DLQEntry.objects.count() == 3


def test_racing_openers_open_one() -> None:
    id = make_execution().pk
    outcomes = at_once(
        *[lambda: investigations.open_manually("execution", id, detail="d", now=NOW, actor="ada")]
        * 4
    )
    refused = [each for each in outcomes if isinstance(each, investigations.AlreadyOpen)]
    assert len(refused) == 3, outcomes
    assert DLQEntry.objects.count() == 1


def test_what_was_opened_is_counted_once_and_undone_with_its_transaction() -> None:
    open_one(fingerprint="a")
    assert investigations.keep([DLQEntry(dlq_timestamp=NOW, fingerprint="a")]) == []
    with transaction.atomic():
        open_one(fingerprint="b")
        transaction.set_rollback(True)
    assert tallied("muster_dlq_entries_created_total") == {("queue_ttl_expired", ""): 1}


@pytest.mark.parametrize("number", [1, 3])
def test_history_has_each_opening_and_each_closing_once(number: int) -> None:
    entries = [DLQEntry(dlq_reason=Reason.POISON, dlq_timestamp=NOW) for _ in range(number)]
    opened = investigations.keep(entries)
    close(opened[0], Resolution.CANCELLED)
    with pytest.raises(investigations.EntryIsClosed):
        close(opened[0])
    last = open_one()
    investigations.annotate(last.dlq_entry_uuid, now=LATER, actor="ada", note="seen")
    rows = list(DLQEntryEvent.objects.values_list("entry_id", "state"))
    assert rows == [
        *((entry.pk, "pending") for entry in opened),
        (opened[0].pk, "cancelled"),
        (last.pk, "pending"),
    ]


def test_no_entries_are_no_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert investigations.keep([]) == []


# --- notes and metadata ---------------------------------------------------------------------------


def test_notes_are_appended_and_metadata_is_merged() -> None:
    id = open_one(metadata={"a": 1, "b": 1}).dlq_entry_uuid
    investigations.annotate(id, now=NOW, actor="ada", note="one", metadata={"b": 2})
    entry = investigations.annotate(id, now=LATER, actor="bob", note="two")
    assert entry.notes == [
        {"at": "2026-03-01T12:00:00Z", "by": "ada", "text": "one"},
        {"at": "2026-03-01T15:00:00Z", "by": "bob", "text": "two"},
    ]
    assert entry.metadata == {"a": 1, "b": 2}
    assert (entry.resolution_status, entry.resolved_at, entry.resolved_by) == ("pending", None, "")


def test_nothing_to_say_is_an_error() -> None:
    with pytest.raises(investigations.NothingToChange, match="Expected a resolution"):
        investigations.annotate(open_one().dlq_entry_uuid, now=NOW, actor="ada")


@pytest.mark.parametrize("notes", [[], [{"text": "other"}], [{"text": "two"}, {"text": "one"}]])
def test_the_database_lets_nobody_rewrite_notes(notes: Any) -> None:
    entry = open_one(notes=[{"text": "one"}, {"text": "two"}])
    rows = DLQEntry.objects.filter(pk=entry.pk)
    with pytest.raises(IntegrityError, match="only appended to"), transaction.atomic():
        rows.update(notes=notes)
    rows.update(notes=[*entry.notes, {"text": "three"}])


def test_racing_notes_are_all_kept() -> None:
    id = open_one().dlq_entry_uuid

    def annotate(text: str) -> None:
        investigations.annotate(id, now=NOW, actor="ada", note=text, metadata={text: 1})

    at_once(*(partial(annotate, text) for text in "01234"))
    entry = DLQEntry.objects.get()
    assert sorted(note["text"] for note in entry.notes) == list("01234")
    assert set(entry.metadata) == set("01234")


# --- closing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("resolution", DLQEntry.CLOSINGS)
def test_closed_says_how_when_and_by_whom(resolution: DLQEntry.Resolution) -> None:
    close(open_one(), resolution)
    row = DLQEntry.objects.get()
    assert (row.resolution_status, row.resolved_at, row.resolved_by) == (resolution, LATER, "ada")
    assert row.notes == [{"at": "2026-03-01T15:00:00Z", "by": "ada", "text": "seen"}]


def test_closed_is_final() -> None:
    entry = close(open_one())
    id = entry.dlq_entry_uuid
    before = DLQEntry.objects.values().get()
    told = "manually_resolved since 2026-03-01 15:00:00 UTC, by ada"
    with pytest.raises(investigations.EntryIsClosed, match=told):
        close(entry, Resolution.CANCELLED)
    with pytest.raises(investigations.EntryIsClosed):
        investigations.annotate(id, now=LATER, actor="bob", note="more")
    assert DLQEntry.objects.values().get() == before


@pytest.mark.parametrize(
    "values",
    [
        {"resolution_status": "pending", "resolved_at": None, "resolved_by": ""},
        {"resolution_status": "cancelled"},
        {"notes": [{"text": "rewritten"}]},
        {"metadata": {"a": 1}},
        {"resolved_by": "bob"},
        {"snapshot": {"a": 1}},
        {"detail": "something else"},
    ],
)
def test_the_database_lets_nobody_change_a_closed_entry(values: dict[str, Any]) -> None:
    entry = close(open_one())
    with pytest.raises(IntegrityError, match=r"final|only appended to"), transaction.atomic():
        DLQEntry.objects.filter(pk=entry.pk).update(**values)


def test_what_a_closed_entry_is_about_may_be_deleted() -> None:
    execution = make_execution()
    close(investigations.open_manually("execution", execution.pk, detail="d", now=NOW, actor="ada"))
    id = execution.pk
    execution.delete()
    assert DLQEntry.objects.get().snapshot["id"] == str(id)


@pytest.mark.parametrize(
    "values",
    [{"resolution_status": "cancelled"}, {"resolved_at": NOW}, {"resolved_by": "ada"}],
)
def test_the_database_wants_closings_whole(values: dict[str, Any]) -> None:
    entry = open_one()
    with pytest.raises(IntegrityError), transaction.atomic():
        DLQEntry.objects.filter(pk=entry.pk).update(**values)


def test_racing_closers_close_once() -> None:
    entry = open_one()
    outcomes = at_once(*[lambda: close(entry)] * 4)
    refused = [each for each in outcomes if isinstance(each, investigations.EntryIsClosed)]
    assert len(refused) == 3, outcomes
    assert len(DLQEntry.objects.get().notes) == 1


def test_unknown_entry() -> None:
    with pytest.raises(investigations.UnknownEntry):
        investigations.annotate(uuid4(), now=NOW, actor="ada", note="n")


def test_hours_until_closed_are_tallied() -> None:
    close(open_one())
    close(open_one())
    assert tallied("muster_dlq_time_in_queue_hours") == {
        ("queue_ttl_expired", "4"): 2,
        ("queue_ttl_expired", "sum"): 6,
    }


# --- counted -------------------------------------------------------------------------------------


def open_several(
    number: int, reason: DLQEntry.Reason, queue: str, name: str = ""
) -> list[DLQEntry]:
    """Letters of one action that died in one queue, a minute one after another."""
    return [
        open_one(
            dlq_reason=reason,
            dlq_timestamp=NOW + timedelta(minutes=minute),
            original_queue=queue,
            subject_kind="execution" if name else "",
            subject_name=name,
        )
        for minute in range(number)
    ]


def counted(grouping: Grouping, *, limit: int = 100) -> list[tuple[Any, ...]]:
    """The group of each row, its pending entries, and all of them."""
    rows = DLQEntry.objects.all().counted_by(grouping, limit=limit)
    counts = ("pending", "total_entries")
    columns = ("dlq_reason", *COUNTED_BY[grouping], *counts)
    return [tuple(row[name] for name in columns) for row in rows]


def test_entries_are_counted_by_subject_and_by_queue_with_most_pending_first() -> None:
    expired, invalid = Reason.QUEUE_TTL_EXPIRED, Reason.MESSAGE_INVALID
    for entry in open_several(4, expired, "worker.1", "shop.sell")[1:]:
        close(entry)
    open_several(2, expired, "worker.2", "shop.list")
    open_several(1, expired, "worker.2", "shop.sell")
    open_several(2, invalid, "worker.1")
    assert counted(Grouping.SUBJECT) == [
        (expired, "execution", "shop.sell", 2, 5),
        (invalid, "", "", 2, 2),
        (expired, "execution", "shop.list", 2, 2),
    ]
    assert counted(Grouping.QUEUE) == [
        (expired, "worker.2", 3, 3),
        (invalid, "worker.1", 2, 2),
        (expired, "worker.1", 1, 4),
    ]
    assert counted(Grouping.QUEUE, limit=1) == [(expired, "worker.2", 3, 3)]


def test_entries_are_counted_by_the_namespace_of_their_template() -> None:
    stale, manual = Reason.STALENESS_TIMEOUT, Reason.MANUAL_DLQ
    for name in ("shop/order/1.0.0", "shop/refund/2.0.0", "ops/clean/1.0.0"):
        about: dict[str, Any] = {"subject_kind": "task", "subject_name": name}
        open_one(dlq_reason=stale, subject_id=uuid4(), **about)
    open_one(dlq_reason=manual, subject_kind="execution", subject_name="shop.sell")
    open_one(dlq_reason=manual)
    assert counted(Grouping.NAMESPACE) == [
        (manual, "", 2, 2),
        (stale, "shop", 2, 2),
        (stale, "ops", 1, 1),
    ]


def test_entries_are_counted_by_the_hour_in_which_they_were_opened() -> None:
    for minutes in (0, 59, 60):
        open_one(dlq_timestamp=NOW + timedelta(minutes=minutes))
    open_one(dlq_reason=Reason.POISON, dlq_timestamp=NOW)
    next_hour = NOW + timedelta(hours=1)
    assert counted(Grouping.HOUR) == [
        (Reason.QUEUE_TTL_EXPIRED, NOW, 2, 2),
        (Reason.POISON, NOW, 1, 1),
        (Reason.QUEUE_TTL_EXPIRED, next_hour, 1, 1),
    ]


def test_each_group_has_times_of_its_own() -> None:
    first, last = open_several(2, Reason.POISON, "worker.1")
    close(first)
    open_several(1, Reason.POISON, "worker.2")
    rows = DLQEntry.objects.all().counted_by(Grouping.QUEUE, limit=100)
    # the one that has more entries is first
    assert rows[0]["avg_resolution_time_minutes"] == pytest.approx(180)
    assert (rows[0]["oldest_entry"], rows[0]["newest_entry"]) == (NOW, last.dlq_timestamp)
    assert (rows[0]["manually_resolved"], rows[0]["permanent_failures"]) == (1, 0)
    assert (rows[1]["avg_resolution_time_minutes"], rows[1]["newest_entry"]) == (None, NOW)
