"""One life of a poll: its events and its cursor are recorded together, and its keys told nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import DataError, OperationalError

from orchestrator.access.audit.models import AuditEvent
from orchestrator.access.keys import storing
from orchestrator.access.keys.references import Reference
from orchestrator.access.keys.storing import NewKey
from orchestrator.automation import kept_keys, trigger_types
from orchestrator.automation.models import Assignment, AssignmentEvent, Event
from orchestrator.automation.sensors import catalogue, logs, reports
from orchestrator.automation.sensors.reports import Report
from orchestrator.core import clock
from tests.automation import play
from tests.automation.sensors import making
from tests.factories import NOW, make_action
from tests.principals import ROOT
from workers.sensors import launching, lives, polling, supervisor
from workers.sensors.file_polls import Step
from workers.sensors.lives import Order
from workers.sensors.polling import PollLife
from workers.sensors.supervisor import Supervisor

URL = "http://127.0.0.1:9/"
AUTHORIZED = {"Authorization": {"$text": ["Bearer ", {"$key": "installation/feed"}]}}


@pytest.fixture(autouse=True)
def shop(db: None, sent: Any, settings: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A place for keys; and a life in this thread, which leaves the test its connection."""
    settings.DATA_DIR = tmp_path
    settings.MUSTER = replace(settings.MUSTER, http_allowed_networks="127.0.0.0/8")
    make_action("shop.ship")
    launching.header_keys.forget()
    for module in (lives, polling):
        monkeypatch.setattr(module, "connections", _Connections())


class _Connections:
    def __getitem__(self, name: str) -> _Connections:
        return self

    def close(self) -> None: ...

    close_all = close


class Planned:
    """A poll that finds what was planned, and then tells its life to end."""

    every_seconds = 0.0

    def __init__(self, life: PollLife, *steps: Step) -> None:
        self.life, self.steps = life, steps
        self.began_with: list[Mapping[str, Any]] = []

    def look(self, cursor: Mapping[str, Any]) -> Iterator[Step]:
        self.began_with.append(cursor)
        yield from self.steps
        self.life.tell(Order.STOP)


def make_life(**parameters: Any) -> PollLife:
    trigger_types.install_built_in(now=NOW)
    trigger = play.make_trigger("core.http_poll", **{"url": URL, **parameters})
    play.make_rule("shop.on", trigger=trigger, parameters={})
    [row] = making.take(making.make_service(now=clock.now()), now=clock.now())
    return PollLife(row, actor=making.ACTOR)


def found(life: PollLife, *keys: str) -> list[Report]:
    trigger = life.lease.sensor.trigger
    assert trigger is not None
    payload = {"item": {}, "key": "1", "change": "new", "url": URL}
    return [Report(trigger=trigger.pk, payload=payload, key=key) for key in keys]


def row() -> Assignment:
    return Assignment.objects.get()


def recorded_keys() -> list[str | None]:
    return list(Event.objects.order_by("pk").values_list("dedup_key", flat=True))


def make_key(value: str) -> None:
    new = NewKey(reference=Reference("installation", "", "feed"), value=value, packs=["core"])
    storing.create(new, by=ROOT, now=clock.now())


# --- what is recorded ----------------------------------------------------------------------------


def test_events_are_recorded_with_the_cursor_and_a_life_goes_on_where_it_was() -> None:
    life = make_life()
    life.poll = Planned(life, (found(life, "a"), {"at": 1}), (found(life, "b"), {"at": 2}))
    life.run()
    assert recorded_keys() == ["a", "b"]
    assert (row().cursor, row().state) == ({"at": 2}, "running")
    life = PollLife(making.row_of(life.lease.sensor.ref), actor=making.ACTOR)
    life.poll = again = Planned(life)
    life.run()
    assert again.began_with == [{"at": 2}]


def test_database_that_is_away_is_waited_for_and_nothing_is_recorded_twice(
    monkeypatch: Any,
) -> None:
    life = make_life()
    life.poll = Planned(life, (found(life, "a"), {"at": 1}))
    count, away = reports._count, iter([True, True, False])

    def fail(*args: Any) -> None:
        count(*args)
        if next(away):
            raise OperationalError("the server closed the connection")

    monkeypatch.setattr(reports, "_count", fail)  # events and cursor are written before it
    monkeypatch.setattr(life, "next_pause", lambda: 0.0)
    record, after = life.record, []

    def noted(*args: Any, **options: Any) -> bool:
        done = record(*args, **options)
        after.append((done, recorded_keys(), row().cursor, life.cursor))
        return done

    monkeypatch.setattr(life, "record", noted)
    life.run()
    nothing: Any = (False, [], {}, {})
    assert after == [nothing, nothing, (True, ["a"], {"at": 1}, {"at": 1})]
    assert row().failures == 0


def test_poll_whose_lease_is_lost_records_nothing_and_ends() -> None:
    life = make_life()
    life.poll = Planned(life, (found(life, "a"), {"at": 1}), (found(life, "b"), {"at": 2}))
    catalogue.restart(life.lease.sensor.ref, now=clock.now(), actor="me")
    life.run()
    assert life.order == Order.KILL
    assert (recorded_keys(), row().cursor, row().state) == ([], {}, "vacant")


def test_cursor_that_cannot_be_kept_is_a_failure_and_its_events_are_not_recorded() -> None:
    life = make_life()
    large = {"files": {f"/var/spool/{number}{'x' * 200}": [1, 2, 3] for number in range(5_000)}}
    life.poll = Planned(life, (found(life, "a"), {"at": 1}), (found(life, "b"), large))
    life.run()
    assert (recorded_keys(), row().cursor, life.cursor) == (["a"], {"at": 1}, {"at": 1})
    assert row().state == "backing_off"
    assert row().problem.startswith("it cannot remember what it has seen: the cursor has 1,")


def test_problem_is_stored_whatever_characters_it_has(monkeypatch: Any) -> None:
    life = make_life()

    def look(cursor: Any) -> Any:
        raise lives.Failed("the server says \0 and \udc80")

    monkeypatch.setattr(life.poll, "look", look)
    life.run()
    assert (row().state, row().problem) == ("backing_off", "the server says \ufffd and \ufffd")


def test_failure_that_the_database_refuses_is_left_to_the_supervisor(monkeypatch: Any) -> None:
    life = make_life()
    refusals: list[None] = []

    def refuse(*_: Any, **__: Any) -> None:
        refusals.append(None)
        if len(refusals) > 1:
            life.tell(Order.KILL)
        raise DataError("value too long")

    def look(cursor: Any) -> Any:
        raise lives.Failed("the server does not answer")

    monkeypatch.setattr(life, "next_pause", lambda: 0.0)
    with monkeypatch.context() as refusing:
        refusing.setattr("workers.sensors.lives.assignments.fail", refuse)
        refusing.setattr(life.poll, "look", look)
        life.run()
    assert len(refusals) == 1
    monkeypatch.setattr(launching, "fits", lambda *_: False)
    service = Supervisor("s2", {})
    service.service = row().service
    service.look()
    assert (row().state, row().problem) == ("backing_off", "its service was interrupted")


# --- keys ----------------------------------------------------------------------------------------


def written(life: PollLife) -> str:
    """All that was stored of it."""
    history = list(AssignmentEvent.objects.values_list("reason", flat=True))
    return " ".join([row().problem, *history, *logs.read(life.lease.sensor, lines=99)])


@pytest.mark.parametrize("key", ["tok-super-secret\nX", "t\u00f6k-super-secret"])
def test_key_that_no_header_may_have_is_told_nobody(key: str, caplog: Any) -> None:
    make_key(key)
    life = make_life(headers=AUTHORIZED)
    life.run()
    assert row().problem == "header Authorization: its key has characters that no header may have"
    assert "super-secret" not in written(life) + caplog.text


def test_fault_of_muster_does_not_tell_what_it_was_about(monkeypatch: Any, caplog: Any) -> None:
    life, told = make_life(), ("Bearer tok-super-secret",)

    def look(cursor: Any) -> Any:
        raise ValueError(*told)

    monkeypatch.setattr(life.poll, "look", look)
    life.run()
    assert row().problem == "a fault of Muster: ValueError"
    assert "super-secret" not in written(life) + caplog.text


def test_opened_keys_are_masked_in_problems_and_in_the_log(monkeypatch: Any) -> None:
    make_key("tok-super-secret")
    life = make_life(headers=AUTHORIZED)

    def answer(*_: Any) -> Any:
        life.journal.note("asked with tok-super-secret")
        raise lives.Failed("the server does not like tok-super-secret")

    monkeypatch.setattr(life.poll, "_answer", answer)
    life.run()
    assert row().problem == "the server does not like ***"
    assert "muster: asked with ***" in written(life)
    assert "super-secret" not in written(life)


def test_key_of_a_poll_is_opened_once_for_each_version_and_audited(monkeypatch: Any) -> None:
    monkeypatch.setattr(kept_keys, "KEPT_SECONDS", -1.0)
    make_key("tok-super-secret")
    for _ in range(4):
        assert launching.open_header_keys(AUTHORIZED) == {"installation/feed": "tok-super-secret"}
    opened = AuditEvent.objects.filter(permission="keys.open")
    assert [(each.object_id, each.decision) for each in opened] == [
        ("installation/feed", "allowed")
    ]
    storing.rotate(
        Reference("installation", "", "feed"), value="tok-next-secret\n", by=ROOT, now=clock.now()
    )
    for _ in range(4):
        assert launching.open_header_keys(AUTHORIZED) == {"installation/feed": "tok-next-secret"}
    assert opened.all().count() == 2
    storing.revoke(Reference("installation", "", "feed"), by=ROOT, now=clock.now())
    with pytest.raises(launching.CannotStart, match="was revoked"):
        launching.open_header_keys(AUTHORIZED)


# --- its supervisor ------------------------------------------------------------------------------


def test_poll_that_hangs_is_not_waited_for(monkeypatch: Any) -> None:
    """In four of them all leases of the service would run out."""
    answers, began = threading.Event(), []

    class Hanging(PollLife):
        def run(self) -> None:
            began.append(self)
            answers.wait(20)

    monkeypatch.setattr(supervisor, "PollLife", Hanging)
    make_life()
    service = Supervisor("s1", {})
    assigned = Assignment.objects.with_sensor().get()
    try:
        service._start(assigned)
        before = service.lives[assigned.pk]
        monkeypatch.setattr(before, "join", lambda *_: pytest.fail("it was waited for"))
        service._start(assigned)
        assert service.lives[assigned.pk] is not before
        assert (before.order, before.is_alive()) == (Order.KILL, True)
    finally:
        answers.set()
        for life in began:
            threading.Thread.join(life, 20)
