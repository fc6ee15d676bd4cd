"""What an order looks for: as many as one order takes, and for no longer than it may."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from orchestrator.bulk import matching
from orchestrator.core.models import Execution
from tests.bulk.play import several
from tests.factories import NOW, make_dlq_entry
from tests.principals import ROOT


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_look_that_takes_too_long_is_given_up(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    several(3)
    monkeypatch.setattr(matching, "SECONDS", 0.1)
    hangs = Execution.objects.extra(where=["pg_sleep(9) IS NOT NULL"])
    wanted = replace(
        matching.EXECUTIONS.wanted("status:open", (), principal=ROOT, now=NOW), rows=hangs
    )
    began = time.monotonic()
    with pytest.raises(matching.LooksTooLong):
        wanted.ids()
    with pytest.raises(matching.LooksTooLong):
        wanted.number(most=10, seconds=0.1)
    assert time.monotonic() - began < 5
    assert replace(wanted, rows=Execution.objects.all()).number(most=10, seconds=10) == 3


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("queue:worker.7.executions", [0]),
        ("queue:worker.*", [0, 1]),
        ("queue:worker.7.executions,mail", [0, 2]),
        ('queue:"worker.*"', []),
        ("-queue:worker.*", [2, 3]),
        ("queue:worker.* reason:message_invalid", [1]),
    ],
)
def test_investigations_are_found_by_the_queue_of_their_letter(
    query: str, places: list[int]
) -> None:
    entries = [
        make_dlq_entry(original_queue="worker.7.executions"),
        make_dlq_entry(original_queue="worker.8.executions", dlq_reason="message_invalid"),
        make_dlq_entry(original_queue="mail"),
        make_dlq_entry(dlq_reason="staleness_timeout"),
    ]
    wanted = matching.INVESTIGATIONS.wanted(query, (), principal=ROOT, now=NOW)
    assert wanted.ids() == [entries[place].dlq_entry_uuid for place in places]
