"""An event or an answer that somebody else holds keeps nobody from the others of its batch."""

from __future__ import annotations

import pytest

from orchestrator.automation import enforcing, matching
from orchestrator.automation.models import Event
from tests.automation import play
from tests.factories import NOW
from tests.locks import held

# SQLite has one writer at a time, and so nothing to pass over
pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]


def test_event_that_somebody_holds_is_passed_over() -> None:
    play.make_rule()
    ids = play.record(1, 2, 3)
    with held(Event.objects.get(pk=ids[0])):
        assert matching.match(ids, now=NOW, actor="executor") == 2
    assert matching.match(ids, now=NOW, actor="executor") == 1


def test_answer_that_somebody_holds_is_passed_over() -> None:
    play.make_rule()
    rows = play.match(play.record(1, 2, 3))
    ids = [row.pk for row in rows]
    with held(rows[0]):
        assert enforcing.enforce(ids, now=NOW, actor="executor") == 2
    assert enforcing.enforce(ids, now=NOW, actor="executor") == 1
