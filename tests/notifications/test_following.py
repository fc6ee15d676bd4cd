"""The follower delivers what changes while somebody waits, whoever wakes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError

from orchestrator.core import clock, fleet
from orchestrator.core.frame import Named
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.notifications import demand, following, metrics, reading, waking
from orchestrator.notifications.following import Follower
from orchestrator.notifications.hearing import Hearing
from orchestrator.notifications.models import Listener
from orchestrator.notifications.notification import Notification
from orchestrator.workflows.models import TransitionRecord
from tests.automation import play as shop
from tests.factories import NOW, make_execution, make_worker
from tests.notifications.play import demand_of_streams
from tests.waiting import wait_until
from tests.workflows.play import Play, end_executions, step

pytestmark = pytest.mark.usefixtures("database", "embedded_broker")


class Listening:
    """A follower, what it delivered, and how many wait for it."""

    def __init__(self) -> None:
        self.told: list[Notification] = []
        self.clients = 1
        self.lost = 0
        self.follower = Follower(
            name="here", deliver=self.told.extend, clients=lambda: self.clients, lost=self._lose
        )

    def _lose(self) -> None:
        self.lost += 1

    @property
    def types(self) -> list[str]:
        return [one.type for one in list(self.told)]

    def follows(self) -> bool:
        return self.follower.is_following.is_set()


@pytest.fixture
def start() -> Iterator[Callable[[], Listening]]:
    started: list[Listening] = []

    def begin() -> Listening:
        started.append(Listening())
        started[-1].follower.start()
        wait_until(started[-1].follows)
        return started[-1]

    yield begin
    for each in started:
        each.follower.stop()
        each.follower.join(10)


def end(execution: Execution) -> None:
    end_executions([execution.pk], "complete", Reason.SUCCEEDED, {}, now=NOW)


def test_what_no_message_told_is_read_after_a_silence(
    start: Callable[[], Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(following.SILENCE_SECONDS, "sqlite", 0.1)
    monkeypatch.setitem(following.SILENCE_SECONDS, "postgresql", 0.1)
    execution = make_execution("running")
    listening = start()
    end(execution)
    wait_until(lambda: "execution.completed" in listening.types)


def test_message_wakes_it_long_before(
    start: Callable[[], Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    for vendor in ("sqlite", "postgresql"):
        monkeypatch.setitem(following.SILENCE_SECONDS, vendor, 3_600.0)
    monkeypatch.setattr(waking, "_waker", None)
    execution = make_execution("running")
    listening = start()
    wait_until(lambda: not listening.follower.problem)
    monkeypatch.setattr(demand_of_streams(), "exists", True)
    end(execution)
    wait_until(lambda: "execution.completed" in listening.types)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_database_wakes_it_for_rare_rows(
    start: Callable[[], Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(following.SILENCE_SECONDS, "postgresql", 3_600.0)
    worker = make_worker("w1")
    listening = start()

    # its own LISTEN may come after its first look: an order is given until one is heard
    def ordered() -> bool:
        fleet.cordon(worker_id=worker.pk, actor="ada", reason="", now=NOW)
        fleet.uncordon(worker_id=worker.pk, actor="ada", reason="", now=NOW)
        return any(each.startswith("worker.") for each in listening.types)

    wait_until(ordered)


def test_who_sees_that_it_listens_is_told_whatever_comes_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listening, execution = Listening(), make_execution("running")
    renew = demand.renew

    def renew_and_end(**about: Any) -> None:
        renew(**about)
        if execution.ended_at is None:
            end(execution)
            execution.refresh_from_db()

    monkeypatch.setattr(demand, "renew", renew_and_end)
    listening.follower._look(silent=True)
    assert "execution.completed" in listening.types


def test_it_goes_on_at_once_behind_many_rows_that_wake_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MOST_AT_ONCE", 2)
    play = Play(step("wash"))
    listening = Listening()
    follower = listening.follower
    follower._begin()
    TransitionRecord.objects.bulk_create(
        TransitionRecord(
            task_id=play.id, step=about, event="end", from_state="in_progress",
            to_state="completed", fence=0, actor="ada", processor="here", at=NOW,
        )
        for about in [*[play.step("wash")] * 5, None]
    )  # fmt: skip
    follower._read(silent=True)
    reads = 1
    while follower._woken.is_set():
        follower._woken.clear()
        follower._read(silent=False)
        reads += 1
    assert "task.completed" in listening.types
    assert reads == 4, "the last one finds that there is no more"


def test_it_goes_on_behind_what_it_cannot_read_and_says_so(
    start: Callable[[], Listening], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = start()
    read, faults = reading.Reader.read, [ValueError("unreadable")]

    def read_once(reader: Any, *about: Any) -> Any:
        if faults:
            raise faults.pop()
        return read(reader, *about)

    monkeypatch.setattr(reading.Reader, "read", read_once)
    monkeypatch.setattr(following, "PAUSE_AFTER_ERROR_SECONDS", 0.01)
    for vendor in ("sqlite", "postgresql"):
        monkeypatch.setitem(following.SILENCE_SECONDS, vendor, 0.1)
    wait_until(lambda: listening.lost == 2)
    wait_until(listening.follows)
    end(make_execution("running"))
    wait_until(lambda: "execution.completed" in listening.types)


def test_messages_that_could_not_be_looked_up_are_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listening = Listening()
    (event_id,) = shop.record(1)
    follower, reader = listening.follower, listening.follower._reader
    follower._begin()
    message = {
        "entity": "event", "ids": [str(event_id)], "state": "recorded", "at": NOW.isoformat(),
    }  # fmt: skip
    follower._take(message)
    feed = reader.feeds["event"]

    broken = replace(feed, about=Named("tests.notifications.test_reading.fails"))
    monkeypatch.setitem(reader.feeds, "event", broken)
    with pytest.raises(OperationalError):
        follower._read(silent=False)
    monkeypatch.setitem(reader.feeds, "event", feed)
    follower._read(silent=False)
    assert "event.recorded" in listening.types
    assert listening.lost == 1, "only as it began"


def test_more_messages_than_are_kept_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_MESSAGES", 1)
    listening = Listening()
    listening.follower._begin()
    for _ in range(2):
        listening.follower._take({"entity": "event", "ids": ["1"]})
    listening.follower._read(silent=False)
    listening.follower._read(silent=False)
    assert listening.lost == 2


def test_it_says_whether_somebody_waits(start: Callable[[], Listening]) -> None:
    listening = start()
    assert demand.exists()
    assert dict(Listener.objects.values_list("name", "clients")) == {"here": 1}
    listening.clients = 0
    wait_until(lambda: not demand.exists())
    assert Listener.objects.filter(name="here").exists(), "it is there, and nobody waits"
    listening.clients = 2
    wait_until(demand.exists)
    wait_until(listening.follows)
    assert listening.lost == 2, "nobody knows what came in between"
    listening.follower.stop()
    listening.follower.join(10)
    assert not Listener.objects.exists()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_row_of_an_old_date_silences_no_stream(start: Callable[[], Listening]) -> None:
    listening = start()
    listening.follower.lag_ms = 40 * 86_400_000
    wait_until(lambda: Listener.objects.get().lag_ms > 0)
    end(make_execution("running"))
    wait_until(lambda: "execution.completed" in listening.types)


def test_it_hears_again_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, problems = threading.Event(), []
    hearing = Hearing(name="here", take=lambda _: None, stopping=stopping)

    def fail(link: Any, queue: str) -> None:
        problems.append(hearing.problem)
        if len(problems) == 2:
            stopping.set()
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    monkeypatch.setattr(hearing, "_drain", fail)
    hearing.run()
    assert problems == ["", ""]
    assert "invalid start byte" in hearing.problem


def test_metrics_count_clients_and_what_they_were_sent() -> None:
    demand.renew(name="n1", clients=3, lag_ms=20, problem="", now=clock.now())
    demand.renew(name="n2", clients=4, lag_ms=40, problem="", now=clock.now())
    metrics.SENT.add({"": 7})
    values: dict[str, Any] = {
        sample.name: sample.value
        for family in metrics.families(clock.now())
        for sample in family.samples
    }
    assert values["muster_notifications_clients"] == 7
    assert values["muster_notifications_listeners"] == 2
    assert values["muster_notifications_lag_seconds"] == 0.04
    assert values["muster_notifications_sent_total"] == 7
    assert values["muster_notifications_gaps_total"] == 0


def test_listener_that_died_wants_nothing_after_a_while() -> None:
    demand.renew(name="dead", clients=3, lag_ms=0, problem="", now=clock.now() - 2 * demand.ALIVE)
    assert not demand.exists()
    demand.leave(name="other", now=clock.now())
    assert not Listener.objects.exists()
