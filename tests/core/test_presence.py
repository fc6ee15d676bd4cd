"""A service that is dead or frozen is seen, and one that ended or was restarted is not missed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections

from orchestrator.core import clock, frame, presence
from orchestrator.core.models import Service
from orchestrator.core.presence import Life, Presence
from tests.factories import NOW, seconds

pytestmark = pytest.mark.django_db


def life(kind: str = "executor", *, started: float = 0, seen: float, **values: Any) -> Life:
    """A life that was started and last heard of so many seconds after `NOW`."""
    known = {"kind": kind, "name": kind, "host": "node-1"}
    times = {"started_at": NOW + seconds(started), "seen_at": NOW + seconds(seen)}
    return Life(**{**known, **times, **values})


def silent(*known: Life, after: float) -> list[Life]:
    return presence.silent(list(known), NOW + seconds(after))


def test_a_service_is_silent_after_two_renewals_that_did_not_come() -> None:
    one = life(seen=0)
    assert silent(one, after=12) == []
    assert silent(one, after=13) == [one]


def test_a_service_that_ended_is_not_silent() -> None:
    assert silent(life(seen=0, stopped_at=NOW), after=60) == []


def test_a_service_that_was_started_again_is_not_missed() -> None:
    assert silent(life(seen=0), life(started=20, seen=60), after=60) == []


def test_one_of_two_that_is_frozen_is_seen_although_the_other_lives() -> None:
    frozen, other = life(seen=10), life(seen=60)
    assert silent(frozen, other, after=60) == [frozen]


def test_another_service_does_not_stand_in_for_a_silent_one() -> None:
    one = life(seen=0)
    assert silent(one, life(name="second", started=20, seen=60), after=60) == [one]


def test_trouble_of_a_service_is_told_until_it_is_over() -> None:
    troubles = iter(["", "a thread fails", ""])
    here = Presence("executor", trouble=lambda: next(troubles))
    here.renew(NOW)
    assert presence.troubled(presence.lives(NOW), NOW) == []
    here.renew(NOW + seconds(5))
    (one,) = presence.troubled(presence.lives(NOW + seconds(5)), NOW + seconds(5))
    assert (one.name, one.trouble) == ("executor", "a thread fails")
    assert presence.troubled([one], NOW + seconds(30)) == [], "it is silent by then"
    here.renew(NOW + seconds(10))
    assert presence.troubled(presence.lives(NOW + seconds(10)), NOW + seconds(10)) == []


def test_a_life_is_renewed_and_ended() -> None:
    here = Presence("executor", "first")
    here.renew(NOW)
    here.renew(NOW + seconds(5))
    row = Service.objects.get()
    assert (row.kind, row.name, row.started_at) == ("executor", "first", NOW)
    assert row.seen_at == NOW + seconds(5)
    here.end(NOW + seconds(6))
    row.refresh_from_db()
    assert row.stopped_at == NOW + seconds(6)


def test_an_executor_that_begins_removes_what_was_over_long_ago() -> None:
    Presence("beat").renew(NOW)
    Presence("api").renew(NOW + timedelta(hours=25))
    assert Service.objects.count() == 2
    Presence("executor").renew(NOW + timedelta(hours=25))
    assert set(Service.objects.values_list("kind", flat=True)) == {"api", "executor"}


def test_a_life_goes_on_after_its_row_was_removed() -> None:
    here = Presence("beat")
    here.renew(NOW)
    Service.objects.all().delete()
    here.renew(NOW + seconds(60))
    assert Service.objects.get().seen_at == NOW + seconds(60)


def test_a_database_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Presence("api")

    def away(now: datetime) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connections, "close_all", lambda: None)
    monkeypatch.setattr(presence, "close_old_connections", lambda: None)
    here._try(away)
    here._try(here.renew)
    assert Service.objects.exists()


def test_each_app_brings_the_services_that_it_knows() -> None:
    Presence("notifier").renew(clock.now())
    assert len(frame.collect(lambda app: app.services)) >= 2
    assert [each.kind for each in presence.lives(clock.now())] == ["notifier"]
