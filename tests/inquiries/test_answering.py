"""Answers: the first one counts, whoever else answers, cancels or is late at the same moment."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from orchestrator.access.authorizer import Identified
from orchestrator.access.models import AuditEvent
from orchestrator.core import maintenance
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.models import Execution
from orchestrator.inquiries import answering, resuming
from orchestrator.inquiries.answerers import MayNotAnswer
from orchestrator.inquiries.answering import AlreadyEnded, ResponseRefused, UnknownInquiry
from orchestrator.inquiries.models import Inquiry, InquiryRecord
from tests.factories import NOW, make_action, make_execution, seconds
from tests.inquiries.play import YES, as_execution, asked, person
from tests.principals import given, principal
from tests.races import at_once
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database")

RACES = 1_000
AT_ONCE = 50


def respond(inquiry: Inquiry, response: Any = None, **values: Any) -> Inquiry:
    known: dict[str, Any] = {"by": person(), "now": NOW + seconds(1)} | values
    return answering.respond(inquiry.pk, YES if response is None else response, **known)


def test_answer_is_kept_with_who_gave_it_and_when() -> None:
    row = respond(asked())
    assert (row.state, row.response, row.answered_by) == ("responded", YES, "user:ada")
    assert row.answered_at == row.ended_at == NOW + seconds(1)
    assert [(each.event, each.actor) for each in row.history.all()] == [("respond", "user:ada")]


def test_of_50_answers_at_once_one_counts_and_49_hear_who_was_faster() -> None:
    inquiry = asked()
    outcomes = at_once(*(partial(respond, inquiry, by=person(f"p{n}")) for n in range(AT_ONCE)))
    kinds = Counter(type(outcome) for outcome in outcomes)
    assert kinds == {Inquiry: 1, AlreadyEnded: AT_ONCE - 1}
    inquiry.refresh_from_db()
    for outcome in outcomes:
        if isinstance(outcome, AlreadyEnded):
            assert f"was answered by {inquiry.answered_by} at 2026-03-01 12:00:01" in str(outcome)
    assert InquiryRecord.objects.count() == 1


@pytest.mark.slow
def test_answer_cancel_and_expiry_at_once_make_one_end() -> None:
    """Of each inquiry: all three begin at the same moment, which is the last one for an answer."""
    inquiries = [asked(ttl_seconds=1) for _ in range(RACES)]

    def each(verb: Any) -> None:
        for inquiry in inquiries:
            try:
                verb(inquiry)
            except AlreadyEnded:
                continue

    late = NOW + seconds(1)
    at_once(
        partial(each, lambda row: respond(row, now=late - timedelta(microseconds=1))),
        partial(each, lambda row: answering.cancel(row.pk, by=person(), now=late)),
        partial(each, lambda row: answering.expire([row], now=late, actor="executor")),
    )
    ends = Counter(Inquiry.objects.values_list("state", flat=True))
    assert sum(ends.values()) == RACES
    assert not ends["pending"]
    assert InquiryRecord.objects.count() == RACES
    for row in Inquiry.objects.prefetch_related("history"):
        (record,) = row.history.all()
        assert record.to_state == row.state
        assert (row.response is not None) == (row.state == "responded")


def test_database_itself_refuses_a_late_answer() -> None:
    inquiry = asked(ttl_seconds=10)
    late = {"answered_at": inquiry.expires_at, "ended_at": inquiry.expires_at}
    with pytest.raises(IntegrityError), transaction.atomic():
        Inquiry.objects.filter(pk=inquiry.pk).update(state="responded", response=YES, **late)


def test_database_itself_keeps_an_end_and_the_history() -> None:
    row = respond(asked())
    for rows in (Inquiry.objects.filter(pk=row.pk), InquiryRecord.objects.filter(inquiry=row)):
        with pytest.raises(IntegrityError), transaction.atomic():
            rows.update(reason="it never was")


def test_same_answer_key_of_the_same_caller_gives_the_stored_answer_again() -> None:
    inquiry = asked()
    first = respond(inquiry, answer_key="k1")
    again = respond(inquiry, {"approved": False}, answer_key="k1", now=NOW + seconds(9))
    assert again.response == first.response == YES
    for values in ({"answer_key": "k2"}, {"answer_key": "k1", "by": person("eve")}, {}):
        with pytest.raises(AlreadyEnded):
            respond(inquiry, **values)


# --- who may not ---------------------------------------------------------------------------------


def refused(inquiry: Inquiry, error: type[Exception], **values: Any) -> str:
    with pytest.raises(error) as caught:
        respond(inquiry, **values)
    inquiry.refresh_from_db()
    assert (inquiry.state, inquiry.response, inquiry.fence) == ("pending", None, 0)
    assert not InquiryRecord.objects.exists()
    return str(caught.value)


def test_the_one_who_asked_cannot_answer_unless_the_question_says_so() -> None:
    why = refused(asked(), MayNotAnswer, by=person("grace"))
    assert why == "user:grace has asked this, so somebody else has to answer"
    allowed = asked(allow_requester=True)
    assert respond(allowed, by=person("grace")).answered_by == "user:grace"


def test_only_assignees_can_answer_by_name_or_by_role() -> None:
    inquiry = asked(assignees=["user:bob", "role:author"])
    assert "Only user:bob, role:author may" in refused(inquiry, MayNotAnswer, by=person("ada"))
    assert respond(inquiry, by=person("carol", "author")).answered_by == "user:carol"
    assert respond(asked(assignees=["user:bob"]), by=person("bob")).answered_by == "user:bob"


def test_permission_is_needed_where_the_question_was_asked() -> None:
    refused(asked(), PermissionMissing, by=person("ada", "viewer"))
    elsewhere = principal(given("operator", packs=["shop"]))
    with pytest.raises(UnknownInquiry):
        respond(asked(), by=elsewhere)


def test_role_counts_where_it_was_granted_and_nowhere_else() -> None:
    elsewhere = given("operator", packs=["billing"])
    some = Identified(
        actor="user:eve",
        key_owner=77,
        layers=((elsewhere, given("inquiries.respond"), given("inquiries.read")),),
        identity="user:eve",
    )
    inquiry = asked(assignees=["role:operator"])
    assert "Only role:operator may" in refused(inquiry, MayNotAnswer, by=some)
    Inquiry.objects.filter(pk=inquiry.pk).update(pack="billing")
    assert answering.respond(inquiry.pk, YES, by=some, now=NOW).answered_by == "user:eve"


def test_execution_cannot_answer_what_it_or_its_tree_has_asked() -> None:
    root = make_execution("running", correlation_id="deploy-7")
    child = make_execution("running", correlation_id="deploy-7")
    stranger = make_execution("running", action=make_action("chat.relay"))
    inquiry = asked(assignees=["action:core.echo", "action:chat.relay"])
    Inquiry.objects.filter(pk=inquiry.pk).update(tree="deploy-7")
    for execution in (root, child):
        assert "cannot answer" in refused(inquiry, MayNotAnswer, by=as_execution(execution))
    assert respond(inquiry, by=as_execution(stranger)).state == "responded"


def test_execution_answers_only_where_its_action_is_named() -> None:
    stranger = make_execution("running", action=make_action("chat.relay"))
    refused(asked(), UnknownInquiry, by=as_execution(stranger))
    named = asked(assignees=["action:chat.relay"])
    assert respond(named, by=as_execution(stranger)).state == "responded"


def test_late_answer_is_refused_before_and_after_its_expiry_was_noticed() -> None:
    inquiry = asked(ttl_seconds=10)
    late = NOW + seconds(10)
    assert "expired at 2026-03-01 12:00:10 UTC" in refused(inquiry, AlreadyEnded, now=late)
    assert resuming.expire_inquiries(now=late) == {"timed_out": 1}
    with pytest.raises(AlreadyEnded, match="expired at"):
        respond(inquiry, now=late)
    inquiry.refresh_from_db()
    assert inquiry.state == "timed_out"
    denied = AuditEvent.objects.filter(decision="denied", object_id=str(inquiry.pk))
    assert {(each.actor, each.permission) for each in denied} == {("user:ada", "inquiries.respond")}


def test_every_problem_of_a_response_is_named() -> None:
    schema = {
        "properties": {"n": {"type": "integer"}, "why": {"type": "string"}},
        "required": ["n", "who"],
    }
    inquiry = asked(schema=schema)
    with pytest.raises(ResponseRefused) as caught:
        respond(inquiry, {"n": "x", "why": 3})
    assert sorted(each.pointer for each in caught.value.refusals) == [
        "/response", "/response/n", "/response/why",
    ]  # fmt: skip
    inquiry.refresh_from_db()
    assert inquiry.is_open


def test_unknown_inquiry_is_unknown() -> None:
    with pytest.raises(UnknownInquiry):
        answering.respond(uuid4(), YES, by=person(), now=NOW)


def test_cancel_says_why_and_ends_it() -> None:
    inquiry = asked()
    row = answering.cancel(inquiry.pk, by=person(), now=NOW, reason="not needed")
    assert (row.state, row.reason, row.ended_by) == ("cancelled", "not needed", "user:ada")
    with pytest.raises(AlreadyEnded, match=r"was cancelled by user:ada .*: not needed"):
        respond(inquiry)
    with pytest.raises(PermissionMissing):
        answering.cancel(asked().pk, by=person("carol", "author"), now=NOW)


def test_executions_are_not_touched_by_an_inquiry_that_holds_up_none() -> None:
    respond(asked())
    assert not Execution.objects.exists()


@pytest.mark.usefixtures("sent")
def test_time_for_an_answer_is_as_long_although_the_clock_was_set_back() -> None:
    early = NOW - timedelta(seconds=600)
    before, later = asked(early, ttl_seconds=3600), asked(NOW, ttl_seconds=60)
    over = asked(NOW, ttl_seconds=60)
    respond(over)
    maintenance.check_timeouts(now=NOW)
    for after_seconds in (0, 5):  # the second time changes nothing
        maintenance.check_timeouts(now=early + seconds(after_seconds))
        assert reread(later).expires_at == early + seconds(60)
        assert reread(before).expires_at == early + seconds(3600)
        assert reread(over).expires_at == NOW + seconds(60)
    assert resuming.expire_inquiries(now=early + seconds(61)) == {"timed_out": 1}
