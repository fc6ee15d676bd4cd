"""A page is told that something moved, by a stream that costs the same for one tab as for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.console.live import hub as hubs
from orchestrator.console.live import pulse as pulses
from orchestrator.console.live import stream, topics
from orchestrator.console.live.hub import Hub
from orchestrator.console.live.pulse import CLOCK_EVERY, Pulse
from orchestrator.console.look import Look
from orchestrator.console.pages import now
from orchestrator.core import clock
from orchestrator.core.models import Action, Execution, Service, Worker
from tests.console.conftest import make_service
from tests.console.test_pages import html, numbers
from tests.factories import make_execution
from tests.principals import given, principal, staff
from tests.workflows.play import Play, step

Person = Callable[[str], Client]


def a_pulse(*followed: str) -> Pulse:
    """One that has looked once, for tabs that follow these topics."""
    pulse = Pulse(
        followed=lambda: followed, publish=lambda _: None, is_wanted=lambda: True,
        lost=lambda: None,
    )  # fmt: skip
    pulse._reader.begin()
    pulse._take_changes(followed=followed)
    return pulse


class Still:
    """A pulse that does not beat."""

    def __init__(self, **_: object) -> None:
        self.starts = 0

    def start(self) -> None:
        self.starts += 1


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(hubs, "Pulse", Still)
    return Hub()


# --- the pulse ------------------------------------------------------------------------------------


def test_a_pulse_tells_of_what_was_accepted_and_of_nothing_twice(
    action: Action, worker: Worker
) -> None:
    pulse = a_pulse()
    assert pulse.beat() == set()
    make_execution("requested", action=action, now=clock.now())
    assert pulse.beat() == {"execution"}
    assert pulse.beat() == set()


def goes_on(execution: Execution, **columns: Any) -> None:
    execution.history.create(
        event="finish", from_status="running", to_status="completed", attempt=1, actor="w1",
        at=clock.now(), **columns,
    )  # fmt: skip


def test_a_pulse_names_the_execution_that_moved(action: Action, worker: Worker) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    other = make_execution("running", action=action, worker=worker, now=clock.now())
    pulse = a_pulse(f"execution:{execution.pk}", "execution:no-id", "execution", "clock")
    goes_on(execution)
    assert pulse.beat() == {"execution", f"execution:{execution.pk}"}
    goes_on(other)
    assert pulse.beat() == {"execution"}
    assert pulse.beat() == set()


def test_a_pulse_names_the_task_of_which_a_step_moved() -> None:
    played = Play(step("first"), step("second", "first"))
    pulse = a_pulse(f"task:{played.id}")
    played.end("first")
    assert pulse.beat() >= {"task", f"task:{played.id}"}


def test_a_pulse_sees_what_is_committed_late(action: Action, worker: Worker) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    goes_on(make_execution("running", action=action, worker=worker, now=clock.now()), pk=5_000)
    pulse = a_pulse(f"execution:{execution.pk}")
    goes_on(execution, pk=4_500)
    assert pulse.beat() == {"execution", f"execution:{execution.pk}"}


def test_a_row_that_is_followed_from_now_on_may_have_moved_before(
    action: Action, worker: Worker
) -> None:
    """Between the answer with the page and its stream."""
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    goes_on(execution)
    pulse = a_pulse()
    pulse.followed = lambda: [f"execution:{execution.pk}"]
    assert pulse.beat() == {f"execution:{execution.pk}"}
    assert pulse.beat() == set()


def test_what_tabs_follow_when_the_pulse_begins_may_have_moved_before(
    action: Action, worker: Worker
) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    goes_on(execution)
    published: list[Any] = []
    pulse = Pulse(
        followed=lambda: [f"execution:{execution.pk}"], publish=published.append,
        is_wanted=lambda: not published, lost=lambda: published.append("lost"),
    )  # fmt: skip
    pulse.stopping = SimpleNamespace(wait=lambda _: False)  # type: ignore[assignment]
    pulse.run()
    assert published == [{f"execution:{execution.pk}"}]


def test_a_beat_reads_no_rows_of_what_came(action: Action, worker: Worker) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    others = [make_execution("running", action=action, worker=worker, now=clock.now())
              for _ in range(30)]  # fmt: skip
    pulse = a_pulse(f"execution:{execution.pk}")
    for each in (execution, *others):
        goes_on(each)
    with CaptureQueriesContext(connection) as queries:
        assert f"execution:{execution.pk}" in pulse.beat()
    of_history = [q["sql"] for q in queries if "executionevent" in q["sql"].lower()]
    assert len(of_history) == 2
    assert all("SUM(" in sql or "COUNT(" in sql for sql in of_history)


def test_a_pulse_tells_of_a_flood_at_every_other_beat(
    action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "FLOOD", 3)
    goes_on(make_execution("running", action=action, worker=worker, now=clock.now()), pk=1_000_000)
    made = iter([make_execution("running", action=action, worker=worker, now=clock.now())
                 for _ in range(20)])  # fmt: skip
    pulse = a_pulse()

    def told_after(rows: int) -> set[str]:
        for execution in islice(made, rows):
            goes_on(execution)
        return pulse.beat()

    assert [told_after(rows) for rows in (1, 3)] == [{"execution"}] * 2
    assert [told_after(rows) for rows in (4, 5)] == [set(), {"execution"}]
    assert [told_after(rows) for rows in (4, 0, 0)] == [set(), {"execution", "clock"}, set()]


def test_a_pulse_tells_when_a_service_falls_silent() -> None:
    pulse = a_pulse()
    Service.objects.filter(kind="executor").delete()
    make_service("executor", silent_seconds=60)
    assert "presence" in pulse.beat()


def test_pages_that_are_told_read_what_is_there_now(
    person: Person, action: Action, worker: Worker
) -> None:
    """What is kept for everybody does not outlast what it counts."""

    def told() -> dict[str, int]:
        found = numbers(html(viewer, "now"))
        return {name.split()[0]: count for name, (_, count) in found.items()}

    viewer, pulse = person("viewer"), a_pulse()
    before = told()
    make_execution("requested", action=action, now=clock.now())
    assert told() == before
    assert "execution" in pulse.beat()
    more = {name: before[name] + 1 for name in ("accepted", "requested")}
    assert told() == before | more


def test_the_live_part_of_now_is_made_once_for_all_who_may_do_the_same(
    action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    read = now.read_open

    def counted(look: Look) -> now.Open:
        made.append(look.user.actor)
        return read(look)

    monkeypatch.setattr(now, "read_open", counted)
    one, other = staff("ada", given("viewer")), staff("bo", given("viewer"))
    operator = staff("cyd", given("operator"))
    only_here = staff("dee", given("viewer", packs=["core"]))
    pulse = a_pulse()

    def asked(client: Client, query: str = "") -> int:
        """How often it was made for this one."""
        before = len(made)
        answer = client.get(reverse("console:now") + query, headers={"X-Live": "1"})
        assert answer.status_code == 200
        assert answer["Vary"].startswith("X-Live, Cookie")
        assert b'<div id="live"' in answer.content
        return len(made) - before

    assert [asked(one), asked(other), asked(one)] == [1, 0, 0]
    assert [asked(operator), asked(operator)] == [1, 0], "who may do more sees more"
    assert [asked(only_here), asked(only_here)] == [1, 1], "who may do it in places has an own"
    assert [asked(one, "?charts=1h"), asked(other, "?charts=1h")] == [1, 0]
    other.cookies["zone"] = "browser~Asia/Tokyo"
    assert asked(other) == 1, "its times are in another zone"
    make_execution("requested", action=action, now=clock.now())
    pulse.beat()
    assert asked(one) == 1, "it has moved"


def test_a_pulse_tells_every_few_seconds_that_ages_have_changed() -> None:
    pulse = a_pulse()
    moved = [pulse.beat() for _ in range(CLOCK_EVERY)]
    assert [each for each in moved if each] == [{"clock"}]


def test_a_beat_takes_the_same_few_queries_however_much_there_is(
    action: Action, worker: Worker
) -> None:
    pulse = a_pulse()
    for _ in range(30):
        make_execution("requested", action=action, now=clock.now())
    with CaptureQueriesContext(connection) as queries:
        pulse.beat()
    assert len(queries) <= 8, "\n".join(q["sql"][:150] for q in queries)


# --- the hub --------------------------------------------------------------------------------------


def test_a_tab_is_told_only_of_what_it_asked_for(hub: Hub) -> None:
    async def play() -> None:
        one, other = hub.join(frozenset({"execution"})), hub.join(frozenset({"worker", "clock"}))
        hub.publish({"execution", "clock"})
        hub.publish({"clock"})
        assert await one.take(within_seconds=1) == {"execution": 1}
        assert await other.take(within_seconds=1) == {"clock": 2}
        assert await one.take(within_seconds=0) == {}

    asyncio.run(play())


def test_a_tab_that_follows_what_others_follow_asks_again_at_once(hub: Hub) -> None:
    """It may have moved between the answer with the page and its stream."""

    async def play() -> None:
        topics = frozenset({"execution:1", "execution:2", "clock"})
        first, second = hub.join(topics), hub.join(topics - {"execution:2"})
        assert await first.take(within_seconds=0) == {}
        assert await second.take(within_seconds=0) == {"execution:1": 0}

    asyncio.run(play())


def test_all_tabs_share_one_pulse_and_the_last_one_ends_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        tabs = [hub.join(frozenset()) for _ in range(5)]
        pulse: Any = hub._pulse
        assert pulse.starts == 1
        for tab in tabs:
            hub.leave(tab)
        assert hub._is_wanted()  # a tab may only load its next page
        monkeypatch.setattr(hubs, "LINGER_SECONDS", 0)
        assert not hub._is_wanted()
        hub.join(frozenset())
        assert hub._pulse is not pulse

    asyncio.run(play())


def test_tabs_are_let_go_when_the_database_is_away_and_the_next_one_has_a_new_pulse(
    hub: Hub,
) -> None:
    async def play() -> None:
        tab = hub.join(frozenset())
        pulse = hub._pulse
        hub._lost()
        await asyncio.sleep(0)
        assert tab.is_closed
        hub.join(frozenset())
        assert hub._pulse is not pulse

    asyncio.run(play())


# --- the stream -----------------------------------------------------------------------------------


def test_a_stream_says_what_moved_and_asks_to_come_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "hub", hub)
    monkeypatch.setattr(stream, "LONGEST_SECONDS", 0.05)
    monkeypatch.setattr(stream, "HERE_SECONDS", 0.04)

    async def play() -> list[str]:
        events = stream._events(frozenset({"execution"}))
        said = [await anext(events)]
        hub.publish({"execution"})
        return said + [each async for each in events]

    said = asyncio.run(play())
    assert said[1] == 'event: moved\ndata: {"execution": 1}\n\n'
    assert said[-1].startswith("event: again")
    assert hub.tabs == set()


def test_a_stream_is_for_staff(client: Client, person: Person) -> None:
    assert client.get(reverse("console:live")).status_code == 302
    answer = person("viewer").get(reverse("console:live"), {"topics": "execution"})
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/event-stream"
    assert "Content-Encoding" not in answer
    answer.close()


def test_who_may_not_know_of_a_topic_is_not_told_of_it() -> None:
    wanted = ["execution", "execution:7", "worker", "presence", "clock", "nothing", "a b"]
    assert topics.permitted(wanted, principal()) == {"clock"}
    fleet = principal(given("workers.read"))
    assert topics.permitted(wanted, fleet) == {"worker", "presence", "clock"}
    assert topics.permitted(wanted, principal(given("viewer"))) == set(wanted[:5])


def test_no_more_tabs_are_kept_up_than_there_is_room_for(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "MOST_TABS", 0)
    answer = admin_client.get(reverse("console:live"))
    assert answer.status_code == 503
    assert answer["Retry-After"] == "30"
