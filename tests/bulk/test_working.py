"""Orders are worked off in batches, each once, and reach an end whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.utils import IntegrityError

from orchestrator.access import identities
from orchestrator.access.authorizer import Identified
from orchestrator.bulk import ordering, verbs, working
from orchestrator.bulk.models import BulkOrder, orders
from orchestrator.bulk.states import OrderState
from orchestrator.core import clock, executions
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent
from orchestrator.core.search import NotUnderstood
from orchestrator.workflows.models import TransitionRecord
from orchestrator.workflows.states import TaskState
from tests import principals
from tests.bulk.play import REASON, order, refused, several, work_off
from tests.factories import make_action, make_dlq_entry, make_execution, make_task
from tests.principals import ROOT, given
from tests.workflows.play import Play, step

TO_THE_LOCK = working.TO_THE_LOCK


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for its share of a second."""
    monkeypatch.setattr(working, "SHARE_SECONDS", 60.0)
    monkeypatch.setattr(working, "BATCH_SECONDS", 60.0)
    monkeypatch.setattr(working, "TO_THE_LOCK", timedelta(0))


def statuses() -> dict[UUID, str]:
    return dict(Execution.objects.values_list("pk", "status"))


@pytest.mark.usefixtures("database")
def test_what_matched_is_cancelled_with_name_and_reason_and_nothing_that_came_later() -> None:
    before = several(7)
    row = order("cancel", "status:open")
    (later,) = several(1)
    row = work_off(row)
    assert (row.state, row.done, row.refused, row.matched) == (OrderState.DONE, 7, 0, 7)
    found = statuses()
    assert {found[each.pk] for each in before} == {"cancelled"}
    assert found[later.pk] == "requested"
    event = ExecutionEvent.objects.of(before[0].pk).last()
    assert event is not None
    assert event.actor == ROOT.actor
    assert Execution.objects.get(pk=before[0].pk).cancel_reason == REASON


@pytest.mark.usefixtures("database")
def test_what_moved_meanwhile_is_refused_with_its_state_and_what_is_gone_too() -> None:
    waiting, begins, goes = several(3)
    row = order("cancel", "status:requested,scheduling")
    Execution.objects.filter(pk=begins.pk).delete()
    running = make_execution("running", now=clock.now())
    part = row.parts.get()
    part.ids = sorted([str(waiting.pk), str(goes.pk), str(running.pk)])
    part.save()
    Execution.objects.filter(pk=goes.pk).delete()
    row = work_off(row)
    assert (row.done, row.refused) == (1, 2)
    why = {each.subject_id: each.why for each in row.refusals.all()}
    assert "It is running now" in why[running.pk]
    assert set(refused(row).values()) == {"no-longer-matches"}
    assert statuses()[running.pk] == "running"


@pytest.mark.usefixtures("database")
def test_run_again_requests_each_once_and_links_it_to_its_origin() -> None:
    failed = several(5, "failed")
    open_one = make_execution("running", now=clock.now())
    row = work_off(order("again", ids=[*(each.pk for each in failed), open_one.pk]))
    assert (row.done, refused(row)) == (5, {str(open_one.pk): "not-to-be-run-again"})
    new = Execution.objects.filter(status="requested")
    assert {each.correlation_id for each in new} == {str(each.pk) for each in failed}
    assert {each.request_reason for each in new} == {REASON}
    # a batch whose mark was lost would ask with the same keys
    keys = {each.idempotency_key for each in new}
    assert keys == {f"again:{each.pk}:bulk:{row.pk}" for each in failed}


@pytest.mark.usefixtures("database")
def test_a_batch_that_is_done_twice_requests_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = several(3, "failed")
    row = order("again", ids=[each.pk for each in failed])
    (first,) = (each for each in failed if each.pk == min(one.pk for one in failed))
    executions.run_again(
        first, token=f"bulk:{row.pk}", by=ROOT.actor, principal=ROOT, now=clock.now()
    )
    assert work_off(row).done == 3
    assert Execution.objects.filter(status="requested").count() == 3


@pytest.mark.usefixtures("database")
def test_an_error_in_the_middle_undoes_the_batch_and_the_next_try_continues_at_the_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several(6)
    row = order("cancel", "status:open")
    done: list[UUID] = []
    cancel = executions.cancel

    def dies_at_the_fourth(**keywords: Any) -> Execution:
        done.append(keywords["execution_id"])
        if len(done) == 4:
            raise RuntimeError("the machine goes")
        return cancel(**keywords)

    monkeypatch.setattr(executions, "cancel", dies_at_the_fourth)
    with pytest.raises(RuntimeError):
        working.look(now=clock.now(), actor="executor")
    row.refresh_from_db()
    assert (row.position, row.tries) == (0, 1)
    assert "the machine goes" in row.last_error
    assert set(statuses().values()) == {"requested"}
    row = work_off(row)
    assert (row.done, row.last_error) == (6, "")
    assert ExecutionEvent.objects.filter(event="cancel").count() == 6


def work_off_with(
    poison: UUID, row: BulkOrder, monkeypatch: pytest.MonkeyPatch
) -> tuple[BulkOrder, int]:
    """Work off an order of which one row ends each look that comes to it; returns the order, and
    how many looks the row has ended."""
    cancel, failures = executions.cancel, 0

    def die(**keywords: Any) -> Execution:
        nonlocal failures
        if keywords["execution_id"] == poison:
            failures += 1
            raise RuntimeError("poison")
        return cancel(**keywords)

    monkeypatch.setattr(executions, "cancel", die)
    for _ in range(50):
        try:
            return work_off(row, looks=1), failures
        except (RuntimeError, AssertionError):
            continue
    return row, failures


@pytest.mark.usefixtures("database")
def test_a_row_that_kills_each_executor_is_refused_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poison = sorted(each.pk for each in several(4))[1]
    row = order("cancel", "status:open")
    row, _ = work_off_with(poison, row, monkeypatch)
    assert (row.state, row.done, row.refused) == (OrderState.DONE, 3, 1)
    (refusal,) = row.refusals.all()
    assert (refusal.subject_id, refusal.kind) == (poison, "failed")
    assert "poison" in refusal.why


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("parts", [1, 2])
def test_one_bad_row_costs_six_failures_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(orders, "IDS_OF_PART", 12 // parts)
    monkeypatch.setattr(ordering, "IDS_OF_PART", 12 // parts)
    poison = sorted(each.pk for each in several(12))[8]
    row = order("cancel", "status:open")
    row, failures = work_off_with(poison, row, monkeypatch)
    assert (row.state, row.done, row.refused, row.tries) == (OrderState.DONE, 11, 1, 0)
    assert row.refusals.get().subject_id == poison
    assert failures == working.MOST_TRIES


@pytest.mark.django_db
def test_after_a_row_that_was_refused_batches_are_large_again() -> None:
    several(4)
    row = order("cancel", "status:open")
    BulkOrder.objects.filter(pk=row.pk).update(tries=working.MOST_TRIES)
    begun = _begun()
    assert working._work_on(next(begun), now=clock.now(), actor="e") == 1
    assert working._work_on(next(begun), now=clock.now(), actor="e") == 3
    row.refresh_from_db()
    assert (row.done, row.refused) == (3, 1)


@pytest.mark.usefixtures("database")
def test_an_order_that_another_executor_has_just_begun_with_counts_no_further_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(working, "TO_THE_LOCK", TO_THE_LOCK)
    first, second = several(2)
    rows = [order("cancel", ids=[each.pk]) for each in (first, second)]
    now = clock.now()
    begun = [working._begin(now=now, actor=f"e{number}") for number in range(3)]
    assert [each.pk if each else None for each in begun] == [rows[0].pk, rows[1].pk, None]
    assert set(BulkOrder.objects.values_list("tries", flat=True)) == {1}
    again = working._begin(now=now + TO_THE_LOCK, actor="e3")
    assert again is not None
    again.refresh_from_db()
    assert (again.pk, again.tries) == (rows[0].pk, 2), "whoever began is gone"


@pytest.mark.usefixtures("database")
def test_rows_that_are_done_alone_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(working, "TO_THE_LOCK", TO_THE_LOCK)
    several(4)
    row = order("cancel", "status:open")
    BulkOrder.objects.update(tries=working.LARGE_TRIES, worked_at=clock.now() - TO_THE_LOCK)
    working.look(now=clock.now(), actor="e")
    row.refresh_from_db()
    assert (row.state, row.done) == (OrderState.DONE, 4)


@pytest.mark.usefixtures("database")
def test_the_mark_is_in_the_transaction_of_the_batch_and_batches_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several(5)
    row = order("cancel", "status:open")
    monkeypatch.setattr(working, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(working, "SHARE_SECONDS", 0.0)
    seen = [working._work_on(begun, now=clock.now(), actor="e") for begun in _begun()]
    assert seen == [1, 1, 1, 1, 1]
    row.refresh_from_db()
    assert row.state == OrderState.DONE


def _begun() -> Iterator[BulkOrder]:
    while (order := working._begin(now=clock.now(), actor="e")) is not None:
        yield order


@pytest.mark.usefixtures("database")
def test_stop_takes_effect_before_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    several(4)
    row = order("cancel", "status:open")
    monkeypatch.setattr(working, "BATCH_SECONDS", 0.0)
    begun = working._begin(now=clock.now(), actor="e")
    assert begun is not None
    assert working._work_on(begun, now=clock.now(), actor="e") == 1
    stopped = ordering.stop(row.pk, principal=ROOT, reason="enough", now=clock.now())
    assert (stopped.state, stopped.position, stopped.end_reason) == ("stopped", 1, "enough")
    assert working._work_on(begun, now=clock.now(), actor="e") == 0
    assert working.look(now=clock.now(), actor="e") == 0
    assert sorted(statuses().values()) == ["cancelled", "requested", "requested", "requested"]
    with pytest.raises(ordering.OrderHasEnded):
        ordering.stop(row.pk, principal=ROOT, reason="again", now=clock.now())


@pytest.mark.usefixtures("database")
def test_a_small_order_does_not_wait_for_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = several(6)
    large = order("cancel", ids=[each.pk for each in rows[:5]])
    small = order("cancel", ids=[rows[5].pk])
    monkeypatch.setattr(working, "BATCH_SECONDS", 0.0)
    for _ in range(2):
        begun = working._begin(now=clock.now(), actor="e")
        assert begun is not None
        working._work_on(begun, now=clock.now(), actor="e")
    large.refresh_from_db()
    small.refresh_from_db()
    assert (large.position, small.state) == (1, OrderState.DONE)


@pytest.mark.usefixtures("database")
def test_an_order_that_has_ended_and_its_refusals_never_change() -> None:
    rows = several(1, "completed")
    row = work_off(order("cancel", ids=[rows[0].pk]))
    assert refused(row) == {str(rows[0].pk): "already-over"}
    for statement in (
        "UPDATE bulk_bulkorder SET refused = 0",
        "UPDATE bulk_refusal SET why = ''",
        "DELETE FROM bulk_refusal",
    ):
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute(statement)


# --- rights ---------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_rights_are_those_of_the_orderer_for_each_row() -> None:
    shop, mail = make_action("shop.echo"), make_action("mail.echo")
    mine = make_execution(action=shop, now=clock.now())
    other = make_execution(action=mail, now=clock.now())
    owner = principals.service("ada", given("viewer"), given("operator", packs=["shop"]))
    ada = _principal("ada")
    row = work_off(order("cancel", "status:open", by=ada))
    assert owner.pk == row.identity_number
    assert (row.done, refused(row)) == (1, {str(other.pk): "forbidden"})
    assert "bulk.order" in row.refusals.get().why
    assert statuses() == {mine.pk: "cancelled", other.pk: "requested"}
    assert row.ordered_by == "service:ada"


@pytest.mark.django_db
def test_what_was_taken_from_the_orderer_since_then_is_refused() -> None:
    (execution,) = several(1)
    owner = principals.service("ada", given("operator"))
    row = order("cancel", "status:open", by=_principal("ada"))
    identities.revoke(owner, list(owner.grants.all()), by=ROOT)
    row = work_off(row)
    assert (row.done, row.refused) == (0, 1)
    assert statuses()[execution.pk] == "requested"


@pytest.mark.django_db
def test_an_order_of_who_was_disabled_fails_and_changes_nothing() -> None:
    several(2)
    owner = principals.service("ada", given("operator"))
    row = order("cancel", "status:open", by=_principal("ada"))
    identities.disable(owner, by=ROOT, now=clock.now())
    row = work_off(row)
    assert (row.state, row.position) == (OrderState.FAILED, 0)
    assert "disabled" in row.end_reason
    assert set(statuses().values()) == {"requested"}


@pytest.mark.django_db
def test_who_may_not_order_or_may_not_do_the_verb_orders_nothing() -> None:
    several(1)
    for grants in ((given("viewer"),), (given("bulk.order"), given("executions.read"))):
        principals.service(f"n{len(grants)}", *grants)
        with pytest.raises(PermissionMissing):
            order("cancel", "status:open", by=_principal(f"n{len(grants)}"))
    assert not BulkOrder.objects.exists()


def _principal(name: str) -> Identified:
    identity = identities.find(f"service:{name}")
    return Identified(
        actor=f"service:{name}",
        key_owner=identity.key_owner,
        layers=(identities.given_to(identity),),
        identity=f"service:{name}",
        identity_id=identity.pk,
    )


# --- what is ordered ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_order_needs_a_search_a_reason_and_something_that_matches() -> None:
    with pytest.raises(ordering.NothingMatches):
        order("cancel", "status:open")
    several(1)
    for values in ({"reason": " "}, {"query": ""}, {"query": "status:open", "resolution": "x"},
                   {"query": "status:open", "ids": [UUID(int=1)]}):  # fmt: skip
        with pytest.raises(ordering.OrderRefused):
            order("cancel", **values)
    with pytest.raises(NotUnderstood, match="did you mean 'failed'"):
        order("cancel", "status:faild")
    with pytest.raises(verbs.UnknownVerb):
        order("explode", "status:open")
    with pytest.raises(ordering.MoreMatch):
        order("cancel", "status:open", at_most=0)
    assert not BulkOrder.objects.exists()


@pytest.mark.django_db
def test_the_same_key_orders_once_and_another_wish_with_it_is_refused() -> None:
    several(1)
    first = order("cancel", "status:open", idempotency_key="k")
    assert order("cancel", "status:open", idempotency_key="k").pk == first.pk
    with pytest.raises(ordering.OrderKeyTaken):
        order("investigate", "status:open", idempotency_key="k")
    assert BulkOrder.objects.count() == 1


@pytest.mark.django_db
def test_a_key_is_of_the_same_rows_and_the_same_resolution() -> None:
    ids = [each.pk for each in several(3)]
    first = order("cancel", ids=ids[:2], idempotency_key="k")
    assert order("cancel", ids=ids[1::-1], idempotency_key="k").pk == first.pk
    for others in (ids[:1], ids[1:], ids):
        with pytest.raises(ordering.OrderKeyTaken):
            order("cancel", ids=others, idempotency_key="k")
    # as an earlier version made it
    BulkOrder.objects.filter(pk=first.pk).update(ids_digest="")
    assert order("cancel", ids=ids[:2], idempotency_key="k").pk == first.pk
    make_dlq_entry(dlq_reason="poison")
    close = partial(order, "close", "reason:poison", idempotency_key="c")
    close(resolution="manually_resolved")
    with pytest.raises(ordering.OrderKeyTaken):
        close(resolution="cancelled")
    assert BulkOrder.objects.count() == 2


@pytest.mark.django_db
def test_a_search_that_scans_looks_back_a_day_and_says_so() -> None:
    now = clock.now()
    long_ago = now - timedelta(days=2)
    make_execution("failed", now=now)
    make_execution("failed", now=now, created_at=long_ago)
    row = order("again", "status:failed", now=now)
    assert (row.matched, row.looked_from) == (1, now - timedelta(days=1))
    assert order("again", "status:failed created:<3d", now=now).matched == 2


@pytest.mark.django_db
def test_times_of_a_search_count_from_the_ordering() -> None:
    now = clock.now()
    execution = make_execution(now=now, created_at=now - timedelta(minutes=59))
    row = order("cancel", "status:open created:<1h", now=now)
    BulkOrder.objects.filter(pk=row.pk).update(created_at=now - timedelta(hours=1))
    row.refresh_from_db()
    assert work_off(row).done == 1
    assert statuses()[execution.pk] == "cancelled"


@pytest.mark.django_db
def test_parameters_and_messages_are_compared_as_they_are_shown() -> None:
    now = clock.now()
    result = {"message": "no route to printer 7"}
    failed = make_execution("failed", now=now, reason="action_failed", result=result)
    make_execution("failed", now=now, reason="action_failed", result={"message": "declined"})
    row = work_off(order("investigate", 'message:"no route"'))
    assert row.done == 1
    entry = DLQEntry.objects.get()
    assert (entry.subject_id, entry.detail, entry.opened_by) == (failed.pk, REASON, ROOT.actor)


# --- investigations and steps ---------------------------------------------------------------------


@pytest.mark.django_db
def test_investigations_are_closed_with_the_reason_as_their_note() -> None:
    now = clock.now()
    mine = make_dlq_entry(about=make_execution("failed", now=now), now=now, dlq_reason="poison")
    other = make_dlq_entry(about=make_execution("failed", now=now), now=now)
    row = order("close", "reason:poison opened:<1h", resolution="manually_resolved")
    assert work_off(row).done == 1
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.resolution_status, mine.notes[0]["text"]) == ("manually_resolved", REASON)
    assert other.resolution_status == "pending"
    again = work_off(order("close", ids=[mine.dlq_entry_uuid], resolution="manually_resolved"))
    assert refused(again) == {str(mine.dlq_entry_uuid): "already-closed"}
    with pytest.raises(ordering.OrderRefused):
        order("close", "reason:poison")
    with pytest.raises(NotUnderstood, match="'poison'"):
        order("close", "reason:poisn", resolution="cancelled")


@pytest.mark.django_db
def test_steps_are_reset() -> None:
    play = Play(step("wash"), now=clock.now())
    play.exhaust("wash")
    row = work_off(order("reset", f"task:{play.id} state:error name:wash"))
    assert (row.done, refused(row)) == (1, {})
    assert play.step("wash").attempts < 2
    again = work_off(order("reset", ids=[play.step("wash").pk]))
    assert refused(again) == {str(play.step("wash").pk): "step-is-busy"}
    record = TransitionRecord.objects.filter(step=play.step("wash"), event="reset").get()
    assert (record.actor, record.reason) == (ROOT.actor, REASON)


@pytest.mark.django_db
def test_tasks_that_were_given_up_are_released() -> None:
    now = clock.now()
    stale, other = (make_task(TaskState.ERROR, now=now, correlation_id=c) for c in ("a-1", "b-1"))
    busy = make_task(TaskState.STEPS_IN_PROCESS, now=now, correlation_id="a-2")
    row = work_off(order("release", "namespace:tests state:error correlation:a-*"))
    assert (row.done, refused(row)) == (1, {})
    stale.refresh_from_db()
    other.refresh_from_db()
    assert (stale.state == TaskState.ERROR, other.state == TaskState.ERROR) == (False, True)
    record = TransitionRecord.objects.get(task=stale, event="release")
    assert (record.actor, record.reason) == (ROOT.actor, REASON)
    assert refused(work_off(order("release", ids=[busy.pk]))) == {str(busy.pk): "not-in-error"}
