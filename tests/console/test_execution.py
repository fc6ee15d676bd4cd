"""One execution: its verdict, its attempts as lanes, its tabs, its output, and acts on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from html import unescape
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core import clock, executions, live_output
from orchestrator.core.live_output import Piece
from orchestrator.core.models import (
    Action,
    DLQEntry,
    Execution,
    ExecutionEvent,
    Worker,
    WorkerEvent,
)
from orchestrator.core.shown import attempts, verdicts
from orchestrator.core.shown import executions as shown
from orchestrator.core.shown.attempts import Stage
from tests.console.costs import looking_alone
from tests.factories import make_action, make_dlq_entry, make_execution, make_worker
from tests.principals import ROOT

Person = Callable[[str], Client]

CANARY = "hunter2-canary"

"""Seven of them are those of the apps that know something of an execution, and of its secrets."""


def page(client: Client, execution: Execution, *, answer: int = 200, **query: str) -> str:
    response = client.get(reverse("console:execution", args=[execution.pk]), query)
    assert response.status_code == answer
    return unescape(response.content.decode())


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def happened(execution: Execution, *events: tuple[float, str, str, int, str, str]) -> None:
    """A history: seconds after the acceptance, event, new status, attempt, actor, reason."""
    was = "requested"
    for after, event, status, attempt, actor, reason in events:
        execution.history.create(
            event=event, from_status=was, to_status=status, attempt=attempt, actor=actor,
            reason=reason, at=execution.created_at + seconds(after),
        )  # fmt: skip
        was = status


@pytest.fixture
def tried(action: Action) -> Execution:
    """Three attempts on two workers: 1 + 2 + 3, 4 + 0.5 (not claimed), and 2 + 1 + 5 s."""
    now = clock.now()
    other = make_worker("w2", now=now, incarnation=3)
    make_worker("w1", now=now)
    start = now - seconds(18.5)
    execution = make_execution(
        "failed", action=action, worker=other, now=now, created_at=start, attempt=3,
        retry_count=2, scheduled_at=start + seconds(12.5), started_at=start + seconds(13.5),
        ended_at=start + seconds(18.5), worker_incarnation=3, reason="action_failed",
        result={"message": "no route to printer 7"},
    )  # fmt: skip
    happened(
        execution,
        (0.4, "wait", "scheduling", 0, "executor", ""),
        (1, "schedule", "scheduled", 1, "executor", ""),
        (3, "claim", "running", 1, "w1", ""),
        (6, "retry", "requested", 1, "check", "worker_lost"),
        (10, "schedule", "scheduled", 2, "executor", ""),
        (10.5, "retry", "requested", 2, "sweep", "scheduled_timeout"),
        (12.5, "schedule", "scheduled", 3, "executor", ""),
        (13.5, "claim", "running", 3, "w2", ""),
        (18.5, "fail", "failed", 3, "w2", "action_failed"),
    )
    for life, after in ((1, -100), (2, -1), (3, 8)):
        WorkerEvent.objects.create(
            worker=Worker.objects.get(name="w1"), kind="registered", incarnation=life, actor="w1",
            at=start + seconds(after),
        )  # fmt: skip
    return execution


# --- attempts ------------------------------------------------------------------------------------


def test_attempts_have_their_waits_queues_and_runs_without_a_gap(tried: Execution) -> None:
    found = attempts.attempts(tried, tried.history.order_by("pk"), clock.now())
    attempts.add_lives(found)
    assert [(each.number, each.worker, each.life) for each in found] == [
        (1, "w1", 2),
        (2, "", None),
        (3, "w2", 3),
    ]
    spent = [[each.seconds(stage) for stage in Stage] for each in found]
    assert spent == [[1, 2, 3], [4, 0.5, 0], [2, 1, 5]]
    stretches = [stretch for each in found for stretch in each.stretches]
    assert all(one.end == other.start for one, other in pairwise(stretches))
    # what the API says of the same times
    assert tried.ended_at is not None
    assert sum(map(sum, spent)) == (tried.ended_at - tried.created_at).total_seconds()
    assert spent[-1][2] == (tried.ended_at - tried.started_at).total_seconds()  # type: ignore[operator]
    assert spent[-1][1] == (tried.started_at - tried.scheduled_at).total_seconds()  # type: ignore[operator]


def test_what_waits_again_has_a_lane_without_a_number(action: Action) -> None:
    now = clock.now()
    execution = make_execution("requested", action=action, now=now, attempt=1, reason="given_back")
    happened(
        execution,
        (1, "schedule", "scheduled", 1, "executor", ""),
        (2, "give_back", "requested", 1, "w1", "given_back"),
    )
    first, waits = attempts.attempts(execution, execution.history.order_by("pk"), now)
    assert (first.ended_by, first.reason) == ("give_back", "given_back")
    assert waits.number is None
    assert waits.seconds(Stage.WAITS) == (now - execution.created_at).total_seconds() - 2


def test_the_page_draws_a_lane_for_each_attempt_and_the_same_as_a_table(
    admin_client: Client, tried: Execution
) -> None:
    found = page(admin_client, tried)
    lanes = re.findall(r'<svg class="lane" role="img" aria-label="([^"]+)"', found)
    assert lanes == [
        "Attempt 1 on w1 (life 2): waited 1 s, in the queue 2 s, ran 3 s",
        "Attempt 2 : waited 4 s, in the queue 500 ms",
        "Attempt 3 on w2 (life 3): waited 2 s, in the queue 1 s, ran 5 s",
    ]
    assert found.count('<rect class="stretch" x=') == 8
    assert "<td>Attempt 3</td><td>on w2 (life 3)</td><td>2 s</td><td>1 s</td><td>5 s</td>" in found
    widths = [float(each) for each in re.findall(r'y="1" width="([\d.]+)%"', found)]
    assert sum(widths) == pytest.approx(100, abs=0.1)


def test_a_verdict_says_how_it_ended_and_whether_to_run_it_again(
    admin_client: Client, tried: Execution
) -> None:
    found = page(admin_client, tried)
    assert "The action failed: “no route to printer 7”. It ran, and the worker saw" in found
    assert "It was tried again 2 times before." in found


@pytest.mark.parametrize(
    ("status", "values", "said"),
    [
        ("requested", {}, "It waits to be given to a worker."),
        ("scheduling", {}, "It waits: no workers available."),
        ("scheduled", {}, "It has been in the queue of w1 for 3 s."),
        ("running", {}, "It has run on w1 for 2 s."),
        ("canceling", {"cancel_reason": "wrong"}, "w1 is stopping it because of “wrong”."),
        ("completed", {}, "The action completed."),
        ("abandoned", {}, "run it again only if it is idempotent."),
        ("cancelled", {"reason": "cancelled", "cancel_reason": "wrong"}, "because of “wrong”."),
    ],
)
def test_a_verdict_of_each_status(
    action: Action, worker: Worker, status: str, values: dict[str, Any], said: str
) -> None:
    now = clock.now()
    execution = make_execution(status, action=action, worker=worker, now=now, **values)
    assert said in verdicts.verdict(execution, now, seen_by=ROOT)


@pytest.mark.parametrize(
    ("ended_before", "said"),
    [
        ("action_failed", "An earlier attempt started: run it again only if it is idempotent."),
        ("worker_lost", "An earlier attempt started: run it again only if it is idempotent."),
        ("task_rejected", "It never started: running it again is safe."),
    ],
)
def test_what_ran_before_its_last_attempt_is_not_said_to_have_never_started(
    action: Action, worker: Worker, ended_before: str, said: str
) -> None:
    now = clock.now()
    execution = make_execution(
        "failed", action=action, worker=worker, now=now, reason="deadline_passed", retry_count=1
    )
    happened(
        execution,
        (2, "retry", "requested", 1, "w1", ended_before),
        (3, "reject", "failed", 1, "sweep", "deadline_passed"),
    )
    others = {"An earlier attempt started", "It never started"} - {said.partition(":")[0]}
    facts = dict(shown.situation(execution, now, seen_by=ROOT))
    lines = shown.timeline(execution, list(ExecutionEvent.objects.of(execution.pk)))
    verdict = verdicts.verdict(execution, now, seen_by=ROOT)
    for text in (verdict, str(facts["Why"]), str(lines[-1].why)):
        assert said in text
        assert not [each for each in others if each in text]


# --- tabs ----------------------------------------------------------------------------------------


def test_each_tab_has_an_address_and_says_what_it_has(
    admin_client: Client, tried: Execution
) -> None:
    made: dict[str, Any] = {"dlq_reason": "queue_ttl_expired", "attempt": 2, "fingerprint": "a:2"}
    death = {"count": 1, "reason": "expired", "queue": "worker.1", "exchange": "", "time": 1}
    make_dlq_entry(about=tried, dlq_timestamp=clock.now(), subject_name="core.echo",
                   x_death=[death], **made)  # fmt: skip
    said = {
        "result": '"message": "no route to printer 7"',
        "stdout": "data-output=",
        "stderr": "data-output=",
        "parameters": "{}",
        "request": "Time limit",
        "letters": "<td>expired</td><td>worker.1</td>",
        "history": "scheduled_timeout",
    }
    found = ""
    for tab, text in said.items():
        found = page(admin_client, tried, tab=tab)
        assert text in found, tab
        current = re.findall(r'href="\?tab=(\w+)#tab" aria-current="page"', found)
        assert current == [tab]
    assert "letters (1)" in found
    assert "history (9)" in found
    assert 'tab=result#tab" aria-current' in page(admin_client, tried, tab="nothing")


@pytest.mark.parametrize("tab", ["result", "stdout", "letters", "history"])
def test_a_page_takes_few_queries_however_often_it_was_tried(
    admin_client: Client, tried: Execution, tab: str
) -> None:
    page(admin_client, tried, tab=tab)
    with looking_alone() as few:
        page(admin_client, tried, tab=tab)
    for number in range(30):
        at = tried.created_at + seconds(18.5)
        tried.history.create(event="note", from_status="failed", to_status="requested",
                             attempt=3 + number, actor="x", at=at)  # fmt: skip
    written(tried, 0, b"one\n", attempt=tried.attempt)
    with looking_alone() as many:
        page(admin_client, tried, tab=tab)
    assert len(many) <= len(few)


# --- output --------------------------------------------------------------------------------------


@pytest.fixture
def printing(action: Action, worker: Worker) -> Execution:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    written(execution, 0, b"one\n")
    return execution


def written(execution: Execution, offset: int, content: bytes, *, attempt: int = 1) -> None:
    piece = Piece(execution.pk, attempt, "stdout", offset, content)
    live_output.write([piece], now=clock.now())


def more(client: Client, execution: Execution, place: str, *, answer: int = 200) -> Any:
    url = reverse("console:execution-output", args=[execution.pk])
    response = client.get(url, {"stream": "stdout", "place": place})
    assert response.status_code == answer
    return response.json()


def test_output_goes_on_from_where_the_page_is(admin_client: Client, printing: Execution) -> None:
    found = page(admin_client, printing, tab="stdout")
    (place,) = re.findall(r'data-place="([^"]+)"', found)
    assert "one\n</pre>" in found
    assert more(admin_client, printing, place) == {"text": "", "place": place, "is_over": False}
    written(printing, 4, b"two\n")
    answer = more(admin_client, printing, place)
    assert answer["text"] == "two\n"
    Execution.objects.filter(pk=printing.pk).update(attempt=2)
    written(printing, 0, b"again\n", attempt=2)
    answer = more(admin_client, printing, answer["place"])
    assert answer["text"] == "--- attempt 2 ---\nagain\n"


def test_output_of_what_has_ended_is_over(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make_execution("completed", action=action, worker=worker, now=clock.now(),
                               result={"stdout": "hello", "exit_code": 0})  # fmt: skip
    found = page(admin_client, execution, tab="stdout")
    assert "hello</pre>" in found
    assert 'data-place=""' in found
    assert more(admin_client, execution, "1:0:0")["is_over"] is True


def test_output_needs_the_permission_and_a_place(
    admin_client: Client, person: Person, printing: Execution
) -> None:
    more(person(""), printing, "1:0:0", answer=404)
    for place in ("", "x", "1", "1:2", "1:-2:0"):
        more(admin_client, printing, place, answer=400)


HOSTILE = "<script>alert(1)</script>\x1b[31mred\u202ertl\x07\r\n" + "x" * 1_000_000


@pytest.mark.parametrize("tab", ["result", "stdout", "parameters", "history"])
def test_whatever_an_action_says_is_text(
    admin_client: Client, action: Action, worker: Worker, tab: str
) -> None:
    execution = make_execution(
        "failed", action=action, worker=worker, now=clock.now(), reason="action_failed",
        result={"message": HOSTILE, "stdout": HOSTILE}, parameters={"<b>": HOSTILE},
        requested_by="user:<b>", cancel_reason="\x1b<i>",
    )  # fmt: skip
    written(execution, 0, HOSTILE.encode()[:60_000])
    response = admin_client.get(reverse("console:execution", args=[execution.pk]), {"tab": tab})
    raw = response.content.decode()
    assert "<script>alert" not in raw
    assert "<b>" not in raw
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", raw)
    assert len(raw) < 250_000


def test_secrets_are_on_no_tab_and_payloads_need_their_permission(
    admin_client: Client, person: Person, worker: Worker
) -> None:
    schema = {"properties": {"pin": {"type": "string", "secret": True}}}
    action = make_action("shop.charge", parameters_schema=schema)
    execution = make_execution(
        "failed", action=action, worker=worker, now=clock.now(), reason="action_failed",
        parameters={"pin": CANARY, "password": CANARY, "order": "plain-order"},
        result={"message": "x", "token": CANARY, "seen": "plain-seen"},
    )  # fmt: skip
    viewer = person("viewer")
    for tab in ("result", "parameters", "request", "history", "stdout"):
        found = page(admin_client, execution, tab=tab)
        assert CANARY not in found
        assert "plain-" not in page(viewer, execution, tab=tab)
    assert "plain-order" in page(admin_client, execution, tab="parameters")
    form = admin_client.get(f"/console/run/shop.charge?from={execution.pk}").content.decode()
    assert CANARY not in form
    assert "plain-order" in form


# --- not found -----------------------------------------------------------------------------------


def v7(at: datetime) -> str:
    from tests.core.search.conftest import id_of

    return str(id_of(at, 1))


def test_what_is_not_there_says_whether_retention_may_have_taken_it(admin_client: Client) -> None:
    now = clock.now()
    said = {
        v7(now - timedelta(days=400)): "so it may have been removed",
        v7(now - timedelta(days=3)): "retention has not taken it",
        v7(now - timedelta(minutes=3)): "there never was one",
        v7(now + timedelta(days=3)): "No execution was ever given an id of this form",
        "ffffffff-ffff-7fff-bfff-ffffffffffff": "No execution was ever given an id",
        "2b1f5a36-7a7c-4a53-9a62-6a2c8e1b3a10": "No execution was ever given an id",
    }
    for id, text in said.items():
        response = admin_client.get(f"/console/executions/{id}")
        assert response.status_code == 404
        assert text in response.content.decode(), id


# --- acts ----------------------------------------------------------------------------------------

MAY = {
    "": set(),
    "viewer": set(),
    "author": {"cancel", "again"},
    "operator": {"cancel", "again", "investigate"},
    "admin": {"cancel", "again", "investigate"},
}


def do(client: Client, execution: Execution, act: str, **more: str) -> Any:
    url = reverse("console:execution-act", args=[execution.pk])
    form = {"act": act, "token": "t", "reason": "wrong printer", "back": page_of(execution)}
    return client.post(url, form | more)


def page_of(execution: Execution) -> str:
    return reverse("console:execution", args=[execution.pk])


@pytest.mark.parametrize("role", MAY)
def test_an_act_is_drawn_for_who_may_do_it_and_refused_to_others(
    person: Person, action: Action, worker: Worker, role: str
) -> None:
    client = person(role)
    for act, status in (("cancel", "running"), ("again", "failed"), ("investigate", "failed")):
        execution = make_execution(status, action=action, worker=worker, now=clock.now())
        before = Execution.objects.count()
        if role:
            assert (f'data-opens="{act}"' in page(client, execution)) is (act in MAY[role])
        answer = do(client, execution, act)
        assert answer.status_code == (302 if act in MAY[role] else 403 if role else 404)
        if act not in MAY[role]:
            assert Execution.objects.count() == before
            assert not DLQEntry.objects.exists()
            execution.refresh_from_db()
            assert execution.status == status


def test_a_cancellation_keeps_its_reason_and_asks_for_one(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make_execution("scheduled", action=action, worker=worker, now=clock.now())
    do(admin_client, execution, "cancel", reason=" ")
    execution.refresh_from_db()
    assert execution.status == "scheduled"
    do(admin_client, execution, "cancel")
    execution.refresh_from_db()
    assert (execution.status, execution.cancel_reason) == ("cancelled", "wrong printer")
    answer = do(admin_client, execution, "cancel")
    assert answer["Location"] == page_of(execution)
    assert "is over: cancelled" in page(admin_client, execution)


def test_what_runs_again_is_made_once_and_linked_both_ways(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make_execution("failed", action=action, worker=worker, now=clock.now())
    first, second = (do(admin_client, execution, "again")["Location"] for _ in range(2))
    assert first == second
    again = Execution.objects.exclude(pk=execution.pk).get()
    assert executions.origin_id(again) == execution.pk
    assert again.request_reason == "wrong printer"
    assert "wrong printer" in page(admin_client, again, tab="history")
    assert do(admin_client, execution, "again", reason=" ", token="third").status_code == 302
    assert executions.reruns(execution).count() == 1
    assert f'href="{page_of(again)}"' in page(admin_client, execution)
    assert f'href="{page_of(execution)}"' in page(admin_client, again)
    do(admin_client, execution, "again", token="another")
    assert executions.reruns(execution).count() == 2


def test_a_link_to_an_origin_that_is_gone_or_made_up_is_none(
    admin_client: Client, action: Action
) -> None:
    for key in ("again:x:1", f"again:{UUID(int=7)}:1", "again:"):
        execution = make_execution("requested", action=action, now=clock.now(), key_owner=0,
                                   idempotency_key=key)  # fmt: skip
        assert "Runs again what" not in page(admin_client, execution)


def test_an_investigation_is_opened_with_what_is_to_be_looked_into(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make_execution("failed", action=action, worker=worker, now=clock.now())
    answer = do(admin_client, execution, "investigate")
    assert answer["Location"].endswith("?tab=letters")
    entry = DLQEntry.objects.get()
    assert (entry.subject_id, entry.detail, entry.opened_by) == (
        execution.pk, "wrong printer", "user:admin",
    )  # fmt: skip
    do(admin_client, execution, "investigate")
    assert DLQEntry.objects.count() == 1
    assert "There is a pending entry" in page(admin_client, execution)


def test_an_act_that_is_none_changes_nothing(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    assert do(admin_client, execution, "explode").status_code == 404
    url = reverse("console:execution-act", args=[execution.pk])
    assert admin_client.get(url).status_code == 405
