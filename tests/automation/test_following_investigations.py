"""An investigation that is opened, or closed, is an event for the rules that wait for it, once."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import following, rules
from orchestrator.automation.followed.investigations import DETAIL_MAX
from orchestrator.automation.models import Enforcement, Event, Trigger, Watermark
from orchestrator.automation.models.triggers import INVESTIGATION
from orchestrator.automation.shown import events as shown
from orchestrator.core import executions, investigations
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.executions import NewExecution
from orchestrator.core.models import DLQEntry, DLQEntryEvent, Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.redaction import REDACTED
from tests import principals
from tests.automation import play
from tests.factories import NOW, make_action, make_execution, make_task, seconds
from tests.principals import given
from tests.workflows.play import end_executions

pytestmark = pytest.mark.usefixtures("database", "sent")

Why, Resolution = DLQEntry.Reason, DLQEntry.Resolution
WHAT = {"text": "{{ trigger.reason }} of {{ trigger.subject_name }}"}
LATER = NOW + seconds(60)


def follow(**parameters: Any) -> Trigger:
    """A trigger that an enabled rule waits for."""
    trigger = play.make_trigger(INVESTIGATION, **parameters)
    play.make_rule(f"shop.on{trigger.pk}", trigger=trigger, parameters=WHAT)
    return trigger


def open_about(
    execution: Execution, *, reason: DLQEntry.Reason = Why.POISON, detail: str = ""
) -> DLQEntry:
    [entry] = investigations.open_for(
        executions.subjects([execution]), reason=reason, now=NOW, actor="sweep", detail=detail
    )
    return entry


def open_task(reason: DLQEntry.Reason = Why.STALENESS_TIMEOUT, *, detail: str = "") -> DLQEntry:
    """An entry about a task of its own."""
    subject = investigations.kind_of("task").take([make_task().pk], now=NOW)
    [entry] = investigations.open_for(subject, reason=reason, now=NOW, actor="sweep", detail=detail)
    return entry


def keep_letter(**values: Any) -> DLQEntry:
    """An entry of a letter without a subject."""
    known = {"dlq_reason": Why.MESSAGE_INVALID, "dlq_timestamp": NOW, "opened_by": "drain"}
    [entry] = investigations.keep([DLQEntry(**known | values)])
    return entry


def close(entry: DLQEntry, resolution: DLQEntry.Resolution = Resolution.MANUALLY_RESOLVED) -> None:
    investigations.close(entry.dlq_entry_uuid, resolution=resolution, now=LATER, actor="ada")


def look() -> int:
    return following.look(now=NOW, actor="executor")


def of(trigger: Trigger) -> list[Event]:
    return list(Event.objects.filter(trigger=trigger).order_by("pk"))


def test_entry_that_is_opened_is_one_event_however_often_it_is_looked_at() -> None:
    trigger = follow()
    execution = make_execution("scheduled", correlation_id="tree")
    entry = open_about(execution, reason=Why.QUEUE_TTL_EXPIRED, detail="waited 60 s for w1")
    assert [look() for _ in range(3)] == [1, 0, 0]

    [event] = of(trigger)
    assert event.payload == {
        "entry_id": str(entry.dlq_entry_uuid),
        "reason": "queue_ttl_expired",
        "state": "pending",
        "subject_kind": "execution",
        "subject_id": str(execution.pk),
        "subject_name": "core.echo",
        "namespace": None,
        "execution_id": str(execution.pk),
        "task_id": None,
        "detail": "waited 60 s for w1",
        "queue": "",
        "at": NOW.isoformat(),
    }
    assert (event.dedup_key, event.depth) == (f"{entry.dlq_entry_uuid}:pending", 1)
    assert (event.correlation_id, event.cause_execution_id) == ("tree", execution.pk)
    assert (event.source, event.occurred_at) == ("investigation", NOW)


@pytest.mark.parametrize("tree", ["tree", None])
def test_event_about_a_task_names_its_namespace_and_is_of_its_tree(tree: str | None) -> None:
    trigger = follow()
    task = make_task(correlation_id=tree)
    subjects = investigations.kind_of("task").take([task.pk], now=NOW)
    investigations.open_for(subjects, reason=Why.STALENESS_TIMEOUT, now=NOW, actor="sweep")
    look()
    [event] = of(trigger)
    assert event.payload["task_id"] == event.payload["subject_id"] == str(task.pk)
    assert event.payload["namespace"] == task.template.namespace
    assert event.payload["execution_id"] is None
    assert (event.correlation_id, event.cause_execution_id) == (tree, None)


def test_event_about_a_letter_names_its_queue() -> None:
    trigger = follow()
    keep_letter(original_queue="orders")
    look()
    [event] = of(trigger)
    assert (event.payload["subject_kind"], event.payload["subject_id"]) == ("", None)
    assert event.payload["queue"] == "orders"


def test_closing_is_an_event_for_whoever_waits_for_it() -> None:
    opened, closed = follow(), follow(states=["manually_resolved", "cancelled"])
    entries = [open_task() for _ in range(3)]
    look()
    for entry, resolution in zip(entries, DLQEntry.CLOSINGS, strict=True):
        close(entry, resolution)
    assert [look() for _ in range(2)] == [2, 0]
    assert [event.payload["state"] for event in of(opened)] == ["pending"] * 3
    states = [event.payload["state"] for event in of(closed)]
    assert states == ["manually_resolved", "cancelled"]
    assert {event.payload["at"] for event in of(closed)} == {LATER.isoformat()}


def test_entry_that_was_closed_before_the_look_was_opened_all_the_same() -> None:
    trigger = follow(states=["pending", "manually_resolved"])
    close(open_task())
    assert look() == 2
    said = [(event.payload["state"], event.payload["at"]) for event in of(trigger)]
    assert said == [
        ("pending", NOW.isoformat()),
        ("manually_resolved", LATER.isoformat()),
    ]


def test_trigger_names_reasons_kinds_and_subjects() -> None:
    poison, tasks = follow(reasons=["poison"]), follow(subject_kinds=["task"])
    letters, shop = follow(subject_kinds=[""]), follow(names=["shop.*"])
    open_about(make_execution("running"))
    open_about(make_execution("running", action=make_action("shop.pay")))
    task, letter = open_task(), keep_letter()
    look()
    assert [event.payload["subject_name"] for event in of(poison)] == ["core.echo", "shop.pay"]
    assert [event.payload["entry_id"] for event in of(tasks)] == [str(task.dlq_entry_uuid)]
    assert [event.payload["entry_id"] for event in of(letters)] == [str(letter.dlq_entry_uuid)]
    assert [event.payload["subject_name"] for event in of(shop)] == ["shop.pay"]


def test_what_was_opened_while_nobody_waited_is_no_event() -> None:
    open_task()
    trigger = follow()
    ref = f"shop.on{trigger.pk}"
    rules.disable(ref, now=NOW)
    assert not Watermark.objects.exists()
    open_task()
    rules.enable(ref, now=NOW)
    assert look() == 0
    open_task()
    assert look() == 1


def test_rules_on_investigations_have_no_work_with_executions_that_end() -> None:
    follow()
    execution = make_execution("running")
    end_executions([execution.pk], "complete", Reason.SUCCEEDED, {}, now=NOW)
    assert not following.is_wanted()
    assert not following.is_wanted_beyond_ends()
    assert following.note_changed([execution.pk], now=NOW, actor="executor") == 0
    assert look() == 0


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite has one writer
def test_entry_that_is_closed_in_a_slow_transaction_is_an_event(late: Any) -> None:
    trigger = follow(states=["permanently_failed"])
    slow, *quick = [open_task() for _ in range(4)]
    late.execute(
        "UPDATE orchestrator_dlqentry SET resolution_status = 'permanently_failed',"
        " resolved_at = now(), resolved_by = 'ada' WHERE id = %s",
        [slow.pk],
    )
    late.execute(
        "INSERT INTO orchestrator_dlqentryevent (entry_id, state)"
        " VALUES (%s, 'permanently_failed')",
        [slow.pk],
    )
    for entry in quick:
        close(entry, Resolution.PERMANENTLY_FAILED)
        look()
    late.commit()

    assert look() == 1
    assert len(of(trigger)) == 4
    look()
    look()
    assert Watermark.objects.get().read_id == DLQEntryEvent.objects.order_by("-pk")[0].pk


# --- loops ---------------------------------------------------------------------------------------


def test_rule_whose_action_has_to_be_investigated_stops_after_ten() -> None:
    trigger = follow()
    first = NewExecution(action_ref="core.echo")
    executions.request(first, requested_by="ada", now=NOW)
    for _ in range(15):
        for execution in Execution.objects.open().select_related("worker", "action"):
            open_about(execution)
            end_executions([execution.pk], "fail", Reason.ACTION_FAILED, {}, now=NOW)
        look()
        play.enforce(play.match(Event.objects.unevaluated().values_list("pk", flat=True)))

    assert sorted(event.depth for event in of(trigger)) == list(range(1, 12))
    assert Event.objects.get(depth=11).problem == "too_deep"
    assert Enforcement.objects.count() == 10
    loop = DLQEntry.objects.get(subject_kind="event")
    assert loop.dlq_reason == Why.DEPENDENCY_CYCLE_DETECTED
    assert f"{loop.dlq_entry_uuid}:pending" not in {event.dedup_key for event in of(trigger)}


def test_rule_that_fails_at_investigations_has_led_to_the_one_about_itself() -> None:
    trigger = play.make_trigger(INVESTIGATION)
    play.make_rule("shop.fails", trigger=trigger, parameters={"text": "{{ trigger.nothing }}"})
    for _ in range(5):
        open_task()
    for _ in range(5):
        look()
        play.enforce(play.match(Event.objects.unevaluated().values_list("pk", flat=True)))
    own = DLQEntry.objects.get(subject_kind="enforcement")
    assert own.dlq_reason == Why.RULE_FAILING
    by_entry = {event.payload["entry_id"]: event.depth for event in of(trigger)}
    assert by_entry.pop(str(own.dlq_entry_uuid)) == 2
    assert list(by_entry.values()) == [1] * 5


# --- what may be seen ----------------------------------------------------------------------------


def test_detail_that_quotes_something_has_no_secrets_and_a_limit() -> None:
    trigger = follow()
    open_task(Why.MAX_RETRIES_EXCEEDED, detail="password=hunter2 " + "x" * 10_000)
    look()
    [event] = of(trigger)
    assert event.payload["detail"].startswith(f"password={REDACTED}")
    assert len(event.payload["detail"]) == DETAIL_MAX


AUTHOR = given("author")


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        ([AUTHOR], "payloads.read"),
        ([AUTHOR, given("payloads.read", packs=["shop", "core"])], "payloads.read"),
        ([given("author", packs=["shop", "core"]), given("payloads.read")], "dlq.read"),
        ([AUTHOR, given("payloads.read")], None),
    ],
)
def test_rule_is_for_who_may_see_every_investigation(
    grants: list[Any], missing: str | None
) -> None:
    trigger, principal = play.make_trigger(INVESTIGATION), principals.principal(*grants)
    if missing is None:
        play.make_rule(trigger=trigger, parameters=WHAT, principal=principal)
        return
    with pytest.raises(PermissionMissing) as raised:
        play.make_rule(trigger=trigger, parameters=WHAT, principal=principal)
    assert raised.value.permission == missing


def test_payload_is_hidden_from_whoever_sees_payloads_of_some_packs_only() -> None:
    trigger = follow()
    open_task()
    look()
    event = Event.objects.select_related("trigger__type").get(trigger=trigger)
    some = principals.principal(AUTHOR, given("payloads.read", packs=["core"]))
    every = principals.principal(AUTHOR, given("payloads.read"))
    assert shown.payload(event, seen_by=some) == REDACTED
    assert shown.payload(event, seen_by=every) == event.payload
