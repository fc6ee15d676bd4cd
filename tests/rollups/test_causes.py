"""Failures of one kind are one cause, its numbers are those of its list, and no secret is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.forms.models import model_to_dict

from orchestrator.core import retention
from orchestrator.core.models import Execution, Worker
from orchestrator.rollups import causes, series, shown
from orchestrator.rollups.models import Failure, FailureCount, FailureGroup
from tests.factories import NOW, make_action, make_execution, make_worker, seconds
from tests.principals import ROOT, given, principal
from tests.rollups.conftest import note_end, roll_up

pytestmark = pytest.mark.django_db

Failed = Callable[..., Execution]
HOUR = timedelta(hours=1)


def groups() -> dict[str, int]:
    return dict(FailureGroup.objects.values_list("sample", "count"))


def test_three_failures_with_other_numbers_are_one_cause_and_two_kinds_are_two(
    failed: Failed,
) -> None:
    for number in range(3):
        failed(f"no route to printer {number}")
    failed("out of paper")
    roll_up()
    assert groups() == {"no route to printer #": 3, "out of paper": 1}
    for group in FailureGroup.objects.all():
        listed = shown.failures(group)
        assert listed.count() == group.count
        assert sum(group.counts.values_list("count", flat=True)) == group.count


def test_another_action_or_reason_is_another_cause(failed: Failed) -> None:
    failed("gone")
    failed("gone", reason="run_timeout")
    failed("gone", action=make_action("core.other"))
    roll_up()
    assert FailureGroup.objects.count() == 3


def test_what_completed_or_was_cancelled_is_no_failure() -> None:
    for status in ("completed", "cancelled"):
        note_end(make_execution(status, result={"message": "x"}))
    roll_up()
    assert groups() == {}


def test_times_and_counts_grow_with_what_comes_later(failed: Failed) -> None:
    failed("gone 1", at=NOW)
    roll_up()
    failed("gone 2", at=NOW - HOUR)
    failed("gone 3", at=NOW + HOUR)
    roll_up()
    group = FailureGroup.objects.get()
    assert (group.count, group.first, group.last) == (3, NOW - HOUR, NOW + HOUR)
    assert FailureCount.objects.count() == 3


def test_what_names_mark_as_secret_is_in_no_row(failed: Failed) -> None:
    canary = "hunter"
    for message in (
        f"refused: password={canary}",
        f'{{"token": "{canary}"}}',
        {"message": "x", "secret": canary},
        f"postgres://ada:{canary}@db/x is away",
        f"login as '{canary}' refused",
        f"login failed, password: {canary}",
        f"wrong {canary}22 given",
    ):
        failed(message)
    roll_up()
    assert FailureGroup.objects.exists()
    for model in (FailureGroup, Failure, FailureCount):
        for row in model.objects.all():
            assert canary not in str(model_to_dict(row)), row


def test_an_action_with_ever_other_words_has_its_others_in_one_cause(
    failed: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "MOST_OF_AN_ACTION", 2)
    for word in ("red", "green", "blue", "grey"):
        failed(f"{word} is not a colour")
    roll_up()
    assert sorted(groups().values()) == [1, 1, 2]
    assert groups()[causes.OTHERS] == 2
    failed("white is not a colour")
    roll_up()
    assert groups()[causes.OTHERS] == 3


def test_the_most_frequent_come_first_and_new_ones_are_marked(failed: Failed) -> None:
    failed("old one", at=NOW - 3 * HOUR)
    for _ in range(3):
        failed("old one", at=NOW)
    failed("new one", at=NOW)
    roll_up()
    since = shown.since(NOW, HOUR)
    numbers = shown.most_frequent(since=since, most=5, seen_by=ROOT)
    found = shown.described(numbers, since=since, seen_by=ROOT)
    assert [(each.title, each.count, each.is_new) for each in found] == [
        ("old one", 3, False), ("new one", 1, True),
    ]  # fmt: skip
    for each in found:
        assert shown.failures(each.group, since=since).count() == each.count
    day = shown.since(NOW, 24 * HOUR)
    trend = series.trends([found[0].group.pk], series.WINDOWS["24h"], since=day, now=NOW)
    assert sum(trend[found[0].group.pk]) == 4


def test_who_may_not_see_a_pack_or_payloads_is_told_neither(failed: Failed) -> None:
    failed("no route to printer 7")
    roll_up()
    since = shown.since(NOW, HOUR)

    def seen(*grants: Any) -> list[str]:
        who = principal(*grants)
        found = shown.most_frequent(since=since, most=5, seen_by=who)
        return [each.title for each in shown.described(found, since=since, seen_by=who)]

    assert seen() == []
    assert seen(given("executions.read", packs=["other"])) == []
    assert seen(given("executions.read")) == ["***"]
    both = [given("executions.read"), given("payloads.read")]
    assert seen(*both) == ["no route to printer #"]


def test_workers_are_counted(failed: Failed) -> None:
    for name, times in (("w1", 2), ("w2", 1)):
        worker = make_worker(name)
        for _ in range(times):
            failed("gone", worker=worker)
    roll_up()
    [group] = FailureGroup.objects.all()
    since = shown.since(NOW, HOUR)
    ids = {name: Worker.objects.get(name=name).pk for name in ("w1", "w2")}
    assert shown.workers([group.pk], since=since) == {group.pk: {ids["w1"]: 2, ids["w2"]: 1}}


def test_old_causes_and_numbers_are_pruned(failed: Failed) -> None:
    failed("long ago", at=NOW - timedelta(days=40))
    failed("still here", at=NOW - timedelta(days=40))
    failed("still here", at=NOW - seconds(60))
    roll_up()
    retention.prune(now=NOW)
    assert groups() == {"still here": 2}
    assert Failure.objects.count() == FailureCount.objects.count() == 1


def test_quantiles_are_read_from_buckets() -> None:
    assert series.quantile({}, 0.5) is None
    assert series.quantile({2: 10}, 0.5) == pytest.approx(0.175)
    assert series.quantile({0: 9, 12: 1}, 0.99) == 1_800
