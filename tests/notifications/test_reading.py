"""What changed is found once, whether a message told of it or not, and whatever commits late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from orchestrator.automation import matching, rules
from orchestrator.core import authority, executions, news
from orchestrator.core.authority import Scope
from orchestrator.core.executions import NewExecution
from orchestrator.core.fleet import orders
from orchestrator.core.frame import Named
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.inquiries import answering
from orchestrator.notifications import journal, reading
from orchestrator.notifications.models import Change
from orchestrator.notifications.notification import Notification
from orchestrator.notifications.reading import Mark, Reader
from orchestrator.policies import changes as policy_changes
from tests.automation import play as shop
from tests.automation.sensors.making import make_sensor
from tests.factories import NOW, make_action, make_dlq_entry, make_execution, make_worker
from tests.inquiries.play import YES, asked, person
from tests.notifications.play import somebody_listens
from tests.policies.play import make_policy
from tests.workflows.play import end_executions

pytestmark = pytest.mark.usefixtures("database", "sent")


@pytest.fixture
def reader() -> Reader:
    made = Reader()
    made.begin()
    return made


def read(reader: Reader) -> list[str]:
    """The types of what is new, in all histories and the journal."""
    return [one.type for one in reader.read(reader.histories)]


def end(execution: Execution) -> None:
    end_executions([execution.pk], "complete", Reason.SUCCEEDED, {}, now=NOW)


def test_transition_is_told_once_with_its_place_and_owner(reader: Reader) -> None:
    execution = make_execution("running", requested_by="ada")
    read(reader)
    end(execution)
    (one,) = reader.read(["execution"])
    assert one.body == {
        "type": "execution.completed",
        "entity": "execution",
        "id": str(execution.pk),
        "pack": "core",
        "owner": "ada",
        "state": "completed",
        "at": NOW.isoformat(),
    }
    assert len(one.as_json(2**53)) < 1024
    assert read(reader) == []


def test_history_that_nobody_asked_about_is_not_read(reader: Reader) -> None:
    end(make_execution("running"))
    assert "execution.completed" not in [one.type for one in reader.read([])]
    assert "execution.completed" in read(reader)


def test_what_was_before_is_not_told() -> None:
    end(make_execution("running"))
    reader = Reader()
    reader.begin()
    assert read(reader) == []


def test_rows_beyond_one_read_are_found_by_the_next(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_AT_ONCE", 2)
    for _ in range(3):
        end(make_execution("running"))
    told: list[str] = []
    while types := read(reader):
        told += types
    assert told.count("execution.completed") == 3


def test_order_to_a_worker_is_told_and_a_heartbeat_is_not(reader: Reader) -> None:
    worker = make_worker(name="w7")
    assert [(one.type, one.id) for one in reader.read([])] == [("worker.active", "w7")]
    Worker.objects.filter(pk=worker.pk).update(heartbeat_at=NOW)
    assert reader.read([]) == []
    orders.cordon(worker_id=worker.pk, actor="ada", reason="disk", now=NOW)
    assert [one.type for one in reader.read([])] == ["worker.cordoned"]


def test_rule_is_told_when_it_is_made_and_changed(reader: Reader) -> None:
    rule = shop.make_rule()
    told = {(one.type, one.state) for one in reader.read([]) if one.entity == "rule"}
    assert told >= {("rule.created", "enabled")}
    rules.disable(rule.ref, now=NOW)
    (one,) = reader.read([])
    assert (one.type, one.state, one.id) == ("rule.changed", "disabled", "shop.ship")


def test_trigger_is_told(reader: Reader) -> None:
    trigger = shop.make_trigger()
    told = [(one.type, one.id, one.pack) for one in reader.read([])]
    assert ("trigger.created", str(trigger.pk), "shop") in told


def test_investigation_is_told_when_it_opens_and_when_it_is_closed(reader: Reader) -> None:
    entry = make_dlq_entry()
    entry.resolution_status = DLQEntry.Resolution.CANCELLED
    entry.resolved_at, entry.resolved_by = NOW, "ada"
    entry.save()
    told = [(one.type, one.id) for one in reader.read([]) if one.entity == "dlq"]
    assert told == [("dlq.cancelled", str(entry.pk))], "as it is when it is read, once"


def test_policy_is_told_to_who_reads_them_all(reader: Reader) -> None:
    policy = make_policy("at-once")
    (one,) = reader.read([])
    assert (one.type, one.id, one.state) == ("policy.created", "at-once", "enabled")
    assert not authority.Reach(((Scope(packs=("*",)),),)).covers(one.place)
    policy_changes.change(policy.ref, {"enabled": False}, now=NOW + timedelta(seconds=1))
    (one,) = reader.read([])
    assert (one.type, one.state) == ("policy.changed", "disabled")


def test_sensor_is_told_as_its_service_says(reader: Reader) -> None:
    sensor = make_sensor()
    told = [(one.type, one.id, one.pack) for one in reader.read([]) if one.entity == "sensor"]
    assert told[-1] == (f"sensor.{sensor.assignment.state}", sensor.ref, sensor.place.name)


def test_messages_with_ids_are_told_of_rows_that_exist(reader: Reader) -> None:
    (event_id,) = shop.record(1)
    at = NOW.isoformat()
    listed = [str(event_id), "01a20b82-be5c-70d3-906d-d3cb64328695", "no id"]
    message = {"entity": "event", "ids": listed, "state": "recorded", "at": at}
    unclear = [{"entity": "event", "ids": [str(event_id)]}, {**message, "entity": "errand"}]
    told: Sequence[Notification] = reader.of_messages([message, *unclear])
    assert [(one.type, one.id, one.pack) for one in told] == [
        ("event.recorded", str(event_id), "shop")
    ]


def test_acceptance_events_and_answers_are_told_by_their_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_action("core.echo")
    shop.make_rule()
    with somebody_listens(monkeypatch) as told:
        new = NewExecution(action_ref="core.echo", parameters={"text": "x"})
        (accepted,) = executions.request_many([new], requested_by="ada", now=NOW)
        events = shop.record(1)
        matching.match(events, now=NOW, actor="executor")
        end(make_execution("running"))
    assert [(each.feed.entity, list(each.ids), each.state) for each in told][:2] == [
        ("execution", [accepted.pk], "requested"),
        ("event", events, "recorded"),
    ]
    assert [(each.feed.entity, each.is_in_history, each.state) for each in told][2:] == [
        ("enforcement", False, "created"),
        ("execution", False, "requested"),
        ("enforcement", False, "executed"),
        ("execution", True, "completed"),
    ]


def test_acceptance_is_told_before_what_the_history_says(reader: Reader) -> None:
    execution = make_execution("running")
    read(reader)
    end(execution)
    accepted = {"ids": [str(execution.pk)], "state": "requested", "at": NOW.isoformat()}
    told = reader.read(["execution"], [{"entity": "execution", **accepted}])
    assert [one.type for one in told] == ["execution.requested", "execution.completed"]


def test_what_is_undone_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = make_execution("running")
    with somebody_listens(monkeypatch) as told:
        with transaction.atomic():
            end(execution)
            transaction.set_rollback(True)
        assert told == []


def test_nothing_is_told_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with somebody_listens(monkeypatch) as told:
        for of_listener, _ in news._listeners():
            monkeypatch.setattr(of_listener, "exists", False)
        end(make_execution("running"))
        assert told == []


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite has one writer
def test_row_that_is_committed_after_a_later_one_is_found(
    reader: Reader, late: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOK_FOR_MISSING_SECONDS", 0.0)
    first, second, before = [make_execution("running") for _ in range(3)]
    end(before)
    read(reader)
    (mark,) = [mark for name, mark in reader._histories.items() if name == "execution"]
    mark.missing.clear()  # the ids of other tests
    late.execute(
        "INSERT INTO orchestrator_executionevent"
        " (execution_id, event, from_status, to_status, attempt, actor, reason, at)"
        " VALUES (%s, 'claim', 'scheduled', 'running', 1, 'test', '', now())",
        [first.pk],
    )
    end(second)
    assert read(reader) == ["execution.completed"]
    assert len(mark.missing) == 1
    assert reader.is_lacking
    assert read(reader) == []
    late.commit()
    assert read(reader) == ["execution.running"]
    assert not mark.missing


def note(pk: int, worker: Worker) -> None:
    Change.objects.create(pk=pk, entity="worker", key=str(worker.pk), verb="changed", at=NOW)


def test_row_that_was_under_way_when_it_began_is_found() -> None:
    first, second = make_worker(name="w7"), make_worker(name="w8")
    Change.objects.all().delete()
    note(5_000, first)
    reader = Reader()
    reader.begin()
    note(4_999, first)
    note(4_001, second)
    assert sorted(one.id for one in reader.read([])) == ["w7", "w8"]
    assert reader.read([]) == []


def test_first_rows_of_an_empty_table_are_found_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "LOOK_FOR_MISSING_SECONDS", 0.0)
    worker = make_worker(name="w7")
    Change.objects.all().delete()
    reader = Reader()
    reader.begin()
    for pk in (5_000, 4_999):
        note(pk, worker)
        assert [one.id for one in reader.read([])] == ["w7"]
    assert not reader.take_dropped()


def test_what_an_error_interrupts_is_read_again(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    end(make_execution("running"))
    feed = reader.feeds["execution"]
    broken = replace(feed, about=Named(f"{__name__}.fails"))
    monkeypatch.setitem(reader.feeds, "execution", broken)
    for _ in range(2):
        with pytest.raises(OperationalError):
            reader.read(["execution"])
    monkeypatch.setitem(reader.feeds, "execution", feed)
    told = [(one.type, one.id) for one in reader.read(["execution"])]
    assert ("worker.active", worker.name) in told
    assert "execution.completed" in [type for type, _ in told]
    assert read(reader) == []


def fails(ids: Any) -> Any:
    raise OperationalError("gone")


def test_ids_that_are_looked_for_no_more_are_a_gap() -> None:
    def has_dropped(*ids: int) -> bool:
        mark = Mark()
        mark.begin(range(1, 1_001))
        mark.note(ids)
        return mark.has_dropped

    assert not has_dropped(1_001, 1_003, 1_990)
    assert has_dropped(*range(1_001, 5_000, 2)), "one id after the other"
    assert has_dropped(5_000), "a long gap"


def test_inquiry_is_told_when_it_is_asked_and_when_it_ends(reader: Reader) -> None:
    row = asked(assignees=["user:ada"])
    (one,) = [one for one in reader.read([]) if one.entity == "inquiry"]
    assert (one.type, one.id, one.pack, one.owner, one.state) == (
        "inquiry.pending", str(row.pk), "core", "user:grace", "pending",
    )  # fmt: skip
    answering.respond(row.pk, YES, by=person(), now=NOW)
    (one,) = [one for one in reader.read([]) if one.entity == "inquiry"]
    assert (one.type, one.id) == ("inquiry.responded", str(row.pk))


def test_journal_is_forgotten_after_an_hour() -> None:
    for minutes in (30, 90):
        Change.objects.create(
            entity="rule", key="1", verb="changed", at=NOW - timedelta(minutes=minutes)
        )
    assert journal.prune(now=NOW) == {"removed": 1}
    assert Change.objects.count() == 1
