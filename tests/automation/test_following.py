"""What happens to executions is an event for the rules that wait for it, once and without gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import transaction

from orchestrator.automation import following, rules
from orchestrator.automation.models import Enforcement, Event, Trigger, Watermark
from orchestrator.automation.trigger_types import EXECUTION
from orchestrator.core import demand, executions, messages, publisher
from orchestrator.core.executions import NewExecution, dispatching, placing
from orchestrator.core.models import Action, DLQEntry, Execution, ExecutionEvent
from orchestrator.core.reasons import Reason
from orchestrator.inquiries.models.inquiries import tree_of
from orchestrator.notifications import waking
from tests.automation import play
from tests.core.scheduling import schedule
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.notifications.play import somebody_listens
from tests.workflows.play import end_executions

pytestmark = pytest.mark.usefixtures("database", "sent")

WHAT = {"text": "{{ trigger.status }}"}


def follow(**parameters: Any) -> Trigger:
    """A trigger that an enabled rule waits for."""
    trigger = play.make_trigger(EXECUTION, **parameters)
    play.make_rule(f"shop.on{trigger.pk}", trigger=trigger, parameters=WHAT)
    return trigger


def end(execution: Execution) -> None:
    end_executions([execution.pk], "complete", Reason.SUCCEEDED, {}, now=NOW)


def look() -> int:
    return following.look(now=NOW, actor="executor")


def told(sent: list[messages.Message]) -> list[str]:
    """The executions whose statuses the executors are told of, by message of their own."""
    changed = [each for each in sent if each.task == messages.STATUS_CHANGED]
    return [id for each in changed for id in each.kwargs["execution_ids"]]


def seen(trigger: Trigger) -> list[str]:
    return [event.payload["status"] for event in Event.objects.filter(trigger=trigger)]


def test_end_of_an_execution_is_one_event_however_often_it_is_seen() -> None:
    trigger = follow()
    execution = make_execution("running", correlation_id="tree")
    end(execution)
    assert following.note_changed([execution.pk], now=NOW, actor="executor") == 1
    assert [look() for _ in range(3)] == [0, 0, 0]

    event = Event.objects.get(trigger=trigger)
    history = ExecutionEvent.objects.get(execution=execution)
    assert event.payload == {
        "execution_id": str(execution.pk),
        "action_ref": "core.echo",
        "status": "completed",
        "was": "running",
        "event": "complete",
        "reason": "succeeded",
        "attempt": 1,
        "at": NOW.isoformat(),
    }
    assert (event.dedup_key, event.depth) == (f"{execution.pk}:{history.pk}", 1)
    assert (event.correlation_id, event.cause_execution_id) == ("tree", execution.pk)


def test_what_comes_of_an_execution_without_a_tree_is_of_its_tree() -> None:
    trigger = follow()
    execution = make_execution("running")
    end(execution)
    look()
    assert Event.objects.get(trigger=trigger).correlation_id == tree_of(execution)


def test_what_no_message_reported_is_found_in_the_history() -> None:
    trigger = follow()
    for _ in range(3):
        end(make_execution("running"))
    assert look() == 3
    assert seen(trigger) == ["completed"] * 3


def test_watermark_rises_so_that_the_history_is_not_read_again() -> None:
    trigger = follow()
    for _ in range(3):
        end(make_execution("running"))
        look()
    mark = Watermark.objects.get(trigger=trigger)
    newest = ExecutionEvent.objects.order_by("-pk")[0].pk
    assert mark.read_id >= newest - 1


def test_what_happened_while_nobody_waited_is_no_event() -> None:
    end(make_execution("running"))
    trigger = follow()
    ref = f"shop.on{trigger.pk}"
    assert following.is_wanted()
    rules.disable(ref, now=NOW)
    assert not following.is_wanted()
    end(make_execution("running"))
    rules.enable(ref, now=NOW)
    assert look() == 0
    end(make_execution("running"))
    assert look() == 1


def test_trigger_names_actions_and_statuses() -> None:
    trigger = follow(actions=["core.e*"], statuses=["running", "completed"])
    end(make_execution("requested", action=make_action("core.noop")))
    end(make_execution("requested"))
    look()
    assert sorted(seen(trigger)) == ["completed", "running"]


def test_other_statuses_are_published_only_while_a_rule_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, sent: list[messages.Message]
) -> None:
    monkeypatch.setattr(demand, "ASK_EVERY_SECONDS", -1.0)
    execution = make_execution("scheduled")
    follow()
    assert claim(execution)
    assert told(sent) == []
    follow(statuses=["running"])
    other = make_execution("scheduled")
    assert claim(other)
    assert told(sent) == [str(other.pk)]
    end(other)
    assert told(sent) == [str(other.pk)], "an end has a message of its own"


def test_listeners_of_streams_cause_no_messages_for_rules(
    monkeypatch: pytest.MonkeyPatch, sent: list[messages.Message]
) -> None:
    with somebody_listens(monkeypatch) as news:
        assert claim(make_execution("scheduled"))
    assert (len(news), told(sent)) == (1, [])


def test_rules_cause_no_messages_for_streams(
    monkeypatch: pytest.MonkeyPatch, sent: list[messages.Message]
) -> None:
    to_notifiers: list[Any] = []
    monkeypatch.setattr(waking, "tell", to_notifiers.append)
    monkeypatch.setattr(demand, "ASK_EVERY_SECONDS", -1.0)
    follow(statuses=["running"])
    execution = make_execution("scheduled")
    assert claim(execution)
    assert (to_notifiers, told(sent)) == ([], [str(execution.pk)])


def claim(execution: Execution) -> list[Execution]:
    assert execution.worker is not None
    return executions.claim(
        [execution.key],
        worker_id=execution.worker.pk,
        incarnation=execution.worker.incarnation,
        now=NOW,
        actor=execution.worker.name,
    )


def give_back(execution: Execution) -> None:
    assert executions.give_back(unstarted=[execution], now=NOW, actor="w1")


def fail_to_dispatch(execution: Execution) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "send", Mock(side_effect=publisher.BrokerUnavailable))
        dispatching.redispatch([execution], now=NOW, actor="executor")


def find_no_queue(execution: Execution) -> None:
    """The broker returns the dispatch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "send", lambda unsent: unsent)
        patch.setattr(publisher, "make_whole", lambda keys: None)
        dispatching.redispatch([execution], now=NOW, actor="executor")


def cancel(execution: Execution) -> None:
    executions.cancel(execution_id=execution.pk, actor="ada", now=NOW)


def place(execution: Execution) -> None:
    make_worker()
    schedule(execution)


def wait_for_a_worker(execution: Execution) -> None:
    Action.objects.update(on_no_worker=Action.OnNoWorker.WAIT)
    schedule(execution)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("requested", place, "scheduled"),
        ("requested", wait_for_a_worker, "scheduling"),
        ("scheduled", claim, "running"),
        ("scheduled", give_back, "requested"),
        ("scheduled", fail_to_dispatch, "requested"),
        ("scheduled", find_no_queue, "requested"),
        ("running", cancel, "canceling"),
    ],
)
def test_each_status_is_told_after_the_commit(
    before: str,
    change: Callable[[Execution], Any],
    after: str,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[messages.Message],
) -> None:
    monkeypatch.setattr(demand, "ASK_EVERY_SECONDS", -1.0)
    trigger = follow(statuses=[after])
    execution = make_execution(before)
    with transaction.atomic():
        change(execution)
        assert told(sent) == []
    assert told(sent) == [str(execution.pk)]
    assert following.note_changed([execution.pk], now=NOW, actor="executor") == 1
    assert seen(trigger) == [after]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_what_is_placed_at_its_acceptance_is_told_as_scheduled(
    monkeypatch: pytest.MonkeyPatch, sent: list[messages.Message]
) -> None:
    monkeypatch.setattr(demand, "ASK_EVERY_SECONDS", -1.0)
    monkeypatch.setattr(placing, "is_idle", lambda: True)
    trigger = follow(statuses=["scheduled"])
    make_worker()
    new = NewExecution(action_ref="core.echo")
    execution = executions.request(new, requested_by="ada", now=NOW)
    assert execution.status == "scheduled"
    assert told(sent) == [str(execution.pk)]
    assert following.note_changed([execution.pk], now=NOW, actor="executor") == 1
    assert seen(trigger) == ["scheduled"]


@pytest.mark.parametrize("by", ["look", "message"])
def test_fault_of_one_trigger_stops_no_other(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    broken, fine = follow(), follow(statuses=["completed"])
    read = following._read

    def fail_for_one(rows: Any, trigger: Trigger) -> list[ExecutionEvent]:
        if trigger == broken:
            raise RuntimeError("a fault of ours")
        return read(rows, trigger)

    monkeypatch.setattr(following, "_read", fail_for_one)
    execution = make_execution("running")
    end(execution)
    message = partial(following.note_changed, [execution.pk], now=NOW, actor="executor")
    call: Callable[[], int] = look if by == "look" else message
    with pytest.raises(RuntimeError):
        call()
    assert (seen(broken), seen(fine)) == ([], ["completed"])


def test_event_that_is_refused_keeps_no_other_from_being_recorded(settings: Any) -> None:
    trigger = follow()
    settings.MUSTER = replace(settings.MUSTER, event_limit_bytes=300)
    end(make_execution("running"))
    end(make_execution("running", action=make_action("core." + "x" * 100)))
    assert [look() for _ in range(4)] == [1, 0, 0, 0]
    assert seen(trigger) == ["completed"]
    assert Watermark.objects.get().read_id == ExecutionEvent.objects.order_by("-pk")[0].pk


def test_rule_that_answers_its_own_execution_stops_after_ten() -> None:
    follow(actions=["core.echo"])
    first = NewExecution(action_ref="core.echo")
    executions.request(first, requested_by="ada", now=NOW)
    for _ in range(15):
        requested = list(Execution.objects.open().values_list("pk", flat=True))
        if requested:
            end_executions(requested, "complete", Reason.SUCCEEDED, {}, now=NOW)
        look()
        play.enforce(play.match(Event.objects.unevaluated().values_list("pk", flat=True)))

    assert [event.depth for event in Event.objects.order_by("depth")] == list(range(1, 12))
    assert Event.objects.get(depth=11).problem == "too_deep"
    assert Enforcement.objects.count() == 10
    assert DLQEntry.objects.filter(subject_kind="event").count() == 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite has one writer
def test_row_with_a_lower_id_that_is_committed_late_is_an_event(late: Any) -> None:
    trigger = follow()
    slow, *quick = [make_execution("completed") for _ in range(4)]
    late.execute(
        "INSERT INTO orchestrator_executionevent"
        " (execution_id, event, from_status, to_status, attempt, actor, reason, at)"
        " VALUES (%s, 'complete', 'running', 'completed', 1, 'w1', 'succeeded', now())",
        [slow.pk],
    )
    for execution in quick:
        ExecutionEvent.objects.create(
            execution=execution, event="complete", from_status="running",
            to_status="completed", attempt=1, actor="w1", at=NOW,
        )  # fmt: skip
        look()
    late.commit()

    assert look() == 1
    assert len(seen(trigger)) == 4
    look()
    look()
    assert Watermark.objects.get().read_id == ExecutionEvent.objects.order_by("-pk")[0].pk
