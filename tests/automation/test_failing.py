"""A rule whose answers are rejected again and again is looked into, once."""

from __future__ import annotations

import pytest

from orchestrator.access import identities
from orchestrator.automation import owners
from orchestrator.automation.models import Enforcement
from orchestrator.core import investigations
from orchestrator.core.models import Action, DLQEntry
from orchestrator.core.models.catalog import forget_actions
from tests import principals
from tests.automation import play
from tests.factories import NOW
from tests.principals import given

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


def reject(*numbers: int) -> list[Enforcement]:
    """The answers of a rule whose action is away."""
    Action.objects.update(enabled=False)
    forget_actions()
    rows = play.answer(*numbers)
    assert {row.state for row in rows} == {"rejected"}
    return rows


def test_rule_that_is_rejected_five_times_in_a_row_is_looked_into_once() -> None:
    play.make_rule()
    rows = reject(1, 2)
    for number in (3, 4):
        rows += reject(number)
        assert not DLQEntry.objects.exists()
    rows += reject(5)
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.subject_kind, entry.subject_name) == (
        "rule_failing", "enforcement", "shop.ship",
    )  # fmt: skip
    assert entry.subject_id == rows[-1].pk
    assert entry.snapshot["rule"] == "shop.ship"
    assert entry.snapshot["reason"] == "action_refused"
    assert entry.snapshot["enforcements"] == [str(row.pk) for row in reversed(rows)]
    assert "the action core.echo is disabled" in entry.detail
    reject(6)
    assert DLQEntry.objects.count() == 1, "while it is pending"


def test_rule_whose_owner_is_disabled_is_looked_into() -> None:
    identity = principals.service("ops", given("author"))
    play.make_rule(principal=owners.principals([identity.pk])[identity.pk])
    identities.disable(identity, by=principals.ROOT, now=NOW)
    play.answer(*range(5))
    entry = DLQEntry.objects.get()
    assert (entry.dlq_reason, entry.snapshot["reason"]) == ("rule_failing", "owner_refused")


def test_answer_that_was_executed_begins_the_row_anew() -> None:
    play.make_rule()
    reject(1, 2)
    Action.objects.update(enabled=True)
    forget_actions()
    play.answer(3)
    reject(4, 5, 6, 7)
    assert not DLQEntry.objects.exists()


def test_rule_that_somebody_looks_into_already_is_rejected_all_the_same() -> None:
    """The newest enforcement is the subject of another investigation."""
    play.make_rule()
    reject(1, 2, 3, 4)
    [row] = play.match(play.record(5))
    investigations.open_manually("enforcement", row.pk, detail="?", now=NOW, actor="ops")
    play.enforce([row])
    assert Enforcement.objects.filter(state="rejected").count() == 5
    assert DLQEntry.objects.get().dlq_reason == "manual_dlq"
