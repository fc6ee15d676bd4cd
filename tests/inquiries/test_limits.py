"""Questions beside policies: a question starts nothing, so no limit concerns it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.models import Execution
from orchestrator.inquiries import resuming
from orchestrator.inquiries.models import Inquiry
from orchestrator.policies.models import PolicyWait
from tests.factories import NOW, make_execution, make_worker, seconds
from tests.inquiries.play import ACTOR, held, request
from tests.policies import play as policies

pytestmark = pytest.mark.usefixtures("database", "sent")


@pytest.fixture(autouse=True)
def workers(database: str) -> None:
    make_worker()


def use_up_the_limit(**values: Any) -> Execution:
    """A policy of one at a time, and the one that runs."""
    policies.make_policy(limit=1, **values)
    running = make_execution()
    policies.look()
    return running


def _waits(execution: Execution) -> bool:
    return PolicyWait.objects.filter(execution=execution.pk).exists()


@pytest.mark.parametrize("on_exceed", ["wait", "reject"])
def test_limit_that_refuses_others_does_not_touch_an_open_question(on_exceed: str) -> None:
    execution, inquiry = held()
    before = (execution.status, execution.wait_reason, execution.next_retry_at)
    use_up_the_limit(on_exceed=on_exceed)
    refused = make_execution()
    policies.look()
    refused.refresh_from_db()
    assert refused.reason == "policy_exceeded" or _waits(refused)
    execution.refresh_from_db()
    assert (execution.status, execution.wait_reason, execution.next_retry_at) == before
    assert not _waits(execution)
    inquiry.refresh_from_db()
    assert inquiry.is_open


def test_open_questions_keep_nothing_waiting_for_a_limit() -> None:
    for _ in range(5):
        held()
    running = use_up_the_limit()
    behind = make_execution()
    policies.look()
    policies.end(running, now=NOW + seconds(1))
    policies.look(now=NOW + seconds(2))
    assert policies.started() == [behind]


def test_question_that_is_not_yet_asked_is_asked_beside_a_full_limit() -> None:
    use_up_the_limit()
    execution = request()
    make_execution()
    policies.look()
    resuming.look(now=NOW + seconds(2), actor=ACTOR)
    assert Inquiry.objects.filter(asked_by_execution=execution).count() == 1
