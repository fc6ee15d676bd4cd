"""The hub gives each client what it wants and may have, and lets no client hold up another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.core.authority import Principal
from orchestrator.core.errors import Forbidden
from orchestrator.notifications.filters import Filter, WrongFilter
from tests import principals
from tests.notifications.play import notification
from workers.notifier import hub as hubs
from workers.notifier.credentials import Credential
from workers.notifier.hub import Client, Hub, NoRoom


def credential(who: Principal | None = None, key: object = "token") -> Credential:
    made = Credential(key, lambda: who or viewer())
    made.ask()
    return made


def viewer(**scope: Any) -> Principal:
    own = principals.given("stream.read")
    return principals.principal(own, principals.given("executions.read", **scope))


def join(hub: Hub, wanted: Filter | None = None, who: Principal | None = None) -> Client:
    client = hub.join(credential(who, key=object()))
    hub.subscribe(client, "", wanted or Filter())
    return client


def ids(client: Client) -> list[str]:
    """What is in its line."""
    return [item.one.id for item in client.line]


def test_client_gets_what_it_wants() -> None:
    hub = Hub()
    shop, one, failed = (
        join(hub, wanted)
        for wanted in (
            Filter(packs=("shop",)),
            Filter(entities=("execution:2",)),
            Filter(types=("execution.failed",)),
        )
    )
    hub.publish(
        [
            notification(id="1"),
            notification(id="2", pack="billing"),
            notification("execution.failed", id="3"),
        ]
    )
    assert (ids(shop), ids(one), ids(failed)) == (["1", "3"], ["2"], ["3"])


def test_client_without_the_right_gets_none() -> None:
    hub = Hub()
    some = join(hub, who=viewer(packs=["billing"]))
    none = join(hub, who=principals.principal(principals.given("stream.read")))
    hub.publish([notification(id="1", pack="shop"), notification(id="2", pack="billing")])
    assert (ids(some), ids(none)) == (["2"], [])


def test_client_that_may_not_read_inquiries_hears_of_none() -> None:
    hub = Hub()
    own = principals.given("stream.read")
    may = principals.principal(own, principals.given("inquiries.read", packs=["shop"]))
    some, none = join(hub, who=may), join(hub, who=viewer())
    hub.publish(
        [
            notification("inquiry.pending", id=str(number), pack=pack, permission="inquiries.read")
            for number, pack in enumerate(("shop", "billing"))
        ]
    )
    assert (ids(some), ids(none)) == (["0"], [])


def test_client_that_comes_back_gets_what_it_missed() -> None:
    hub = Hub()
    hub.publish([notification(id=str(number)) for number in range(5)])
    client = join(hub)
    hub.resume(client, "", f"{hub.name}:2")
    assert (ids(client), client.has_gap) == (["2", "3", "4"], False)


@pytest.mark.parametrize(
    "after", ["other:2", "{}:", "{}:x", "{}:99999", "{}:0", "", "{}:" + 5_000 * "9", "{}:\u0663"]
)
def test_what_cannot_be_resumed_is_a_gap(after: str) -> None:
    hub = Hub()
    hub.publish([notification(id=str(number)) for number in range(hubs.RING + 5)])
    client = join(hub)
    hub.resume(client, "", after.format(hub.name))
    assert (ids(client), client.has_gap) == ([], True)


def test_client_that_was_away_gets_all_that_the_ring_has() -> None:
    hub = Hub()
    hub.publish([notification(id=str(number)) for number in range(hubs.LINE + 500)])
    client = join(hub)
    hub.resume(client, "", f"{hub.name}:100")
    hub.publish([notification(id="now")])
    assert (len(client.line), client.has_gap) == (hubs.LINE + 401, False)


def test_each_notification_is_resumed_once_whatever_filters_want_it() -> None:
    hub = Hub()
    hub.publish([notification(id="1"), notification(id="2", owner="bob")])
    client = hub.join(credential())
    for name, wanted in (
        ("a", Filter(owners=("ada",))),
        ("b", Filter(types=("task.*",))),
        ("c", Filter(types=("execution.*",))),
    ):
        hub.subscribe(client, name, wanted)
        hub.resume(client, name, f"{hub.name}:0")
    assert ids(client) == ["1", "2"]


def test_filter_that_came_later_does_not_hide_what_was_before_it() -> None:
    hub = Hub()
    hub.publish([notification(id="1")])
    client = join(hub)
    hub.publish([notification(id="2")])
    hub.subscribe(client, "ada", Filter(owners=("ada",)))
    hub.resume(client, "ada", f"{hub.name}:0")
    assert sorted(ids(client)) == ["1", "2"]


def test_slow_client_has_a_gap_and_the_others_have_none() -> None:
    hub = Hub()
    slow = join(hub)
    for start in range(0, hubs.LINE + 10, 10):
        quick = join(hub)
        hub.publish([notification(id=str(number)) for number in range(start, start + 10)])
        assert len(quick.line) == 10
        assert not quick.has_gap
        hub.leave(quick)
    assert slow.has_gap
    assert len(slow.line) < hubs.LINE
    assert hub.taken_counts()[1] == 1


def test_gap_is_told_before_what_came_after_it() -> None:
    async def run() -> tuple[bool, list[Any]]:
        hub = Hub()
        client = join(hub)
        hub.miss_all()
        hub.publish([notification(id="after")])
        return await client.take(within_seconds=1)

    had_gap, items = asyncio.run(run())
    assert had_gap
    assert [item.one.id for item in items] == ["after"]


def test_client_that_wants_nothing_misses_nothing() -> None:
    hub = Hub()
    client = hub.join(credential())
    hub.miss_all()
    assert not client.has_gap


def test_nothing_in_time_is_nothing() -> None:
    async def run() -> tuple[bool, list[Any]]:
        return await join(Hub()).take(within_seconds=0.01)

    assert asyncio.run(run()) == (False, [])


def test_identity_has_ten_connections(settings: Any) -> None:
    hub = Hub()
    clients = [hub.join(credential(key=n)) for n in range(hubs.MOST_CONNECTIONS)]
    with pytest.raises(NoRoom, match="has 10 connections already"):
        hub.join(credential(key="one more"))
    hub.leave(clients[0])
    hub.join(credential(key="instead"))


def test_process_has_so_many_clients(settings: Any) -> None:
    settings.MUSTER = type(settings.MUSTER)(stream_clients=1)
    hub = Hub()
    hub.join(credential())
    with pytest.raises(NoRoom, match="MUSTER_STREAM_CLIENTS"):
        hub.join(credential())


def test_client_has_twenty_filters() -> None:
    hub = Hub()
    client = hub.join(credential())
    for number in range(20):
        hub.subscribe(client, f"user:{number}", Filter(owners=(str(number),)))
    with pytest.raises(WrongFilter, match="at most 20"):
        hub.subscribe(client, "all", Filter())
    hub.subscribe(client, "user:3", Filter(owners=("3",)))  # the same again
    assert hub.unsubscribe(client, "user:3")
    hub.subscribe(client, "all", Filter())


def test_filter_that_is_taken_back_matches_no_more() -> None:
    hub = Hub()
    client = join(hub)
    assert hub.unsubscribe(client, "")
    assert not hub.unsubscribe(client, "")
    hub.publish([notification()])
    assert ids(client) == []


def changing(*answers: Callable[[], Principal]) -> Credential:
    """A credential whose owner is asked again and again."""
    left = iter(answers)
    made = Credential("another token", lambda: next(left)())
    made.ask()
    return made


def refuse() -> Principal:
    raise Forbidden("revoked")


def test_refused_credential_ends_its_streams() -> None:
    hub = Hub()
    good, bad = hub.join(credential()), hub.join(changing(viewer, refuse))
    for each in hub.credentials.all():
        each.ask_again()
    hub.close_refused()
    assert (good.is_closed, bad.is_closed) == (False, True)


def test_grant_that_is_taken_away_counts_from_the_next_question_on() -> None:
    hub = Hub()
    client = hub.join(changing(viewer, lambda: viewer(packs=["billing"])))
    hub.subscribe(client, "", Filter())
    hub.publish([notification(id="before")])
    client.credential.ask_again()
    hub.publish([notification(id="after")])
    assert ids(client) == ["before"]


def test_grants_that_are_too_old_give_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    client = join(hub)
    monkeypatch.setattr(client.credential, "asked_at", time.monotonic() - 6)
    hub.publish([notification()])
    assert (ids(client), client.has_gap) == ([], True)


def test_hub_is_wanted_for_a_while_after_its_last_client(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    assert hub.wanted == 0
    client = join(hub)
    assert hub.wanted == 1
    hub.leave(client)
    assert hub.wanted == 1
    monkeypatch.setattr(hubs, "LINGER_SECONDS", 0.0)
    assert hub.wanted == 0
