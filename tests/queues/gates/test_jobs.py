"""Tasks of jobs that are paused or over do not run; who cannot be asked stops nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.core.models import Execution
from orchestrator.core.models.catalog import forget_actions
from orchestrator.queues.gates import intake, jobs, telling
from orchestrator.queues.gates.jobs import Answer, Response
from orchestrator.queues.models import Gate, Ticket
from tests.factories import NOW
from tests.queues.gates import messages
from tests.queues.gates.conftest import Sent

MakeGate = Callable[..., Gate]
URL = "http://jobs.example/J1"
SOON = NOW + timedelta(seconds=1)


@pytest.fixture(autouse=True)
def fresh_actions() -> None:
    forget_actions()


class Service:
    """A job service that counts its questions."""

    def __init__(self, text: str = "", status: int = 200, **headers: str) -> None:
        self.response = Response(status, text, {k.replace("_", "-"): v for k, v in headers.items()})
        self.asked = 0

    def __call__(self, url: str) -> Response:
        assert url == URL
        self.asked += 1
        return self.response


def taken(gate: Gate, *task_ids: str, **tracking: Any) -> list[Ticket]:
    deliveries = [
        intake.deliver(
            messages.body(id, tracking={"jobTaskId": "J1", "statusCheckUrl": URL, **tracking}),
            {},
            {},
            redelivered=False,
        )
        for id in task_ids or ("t1",)
    ]
    done = intake.take_in(deliveries, gate=gate, holder="e1", now=NOW)
    return list(Ticket.objects.filter(pk__in=[each.ticket_id for each in done]))


def look(gate: Gate, service: Service, now: Any = SOON, checker: Any = None) -> int:
    checker = checker or jobs.Checker(service)
    return int(checker.look({gate.queue_id: gate}, now=now))


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (Response(200, '"Active"'), "active"),
        (Response(200, "Waiting"), "active"),
        (Response(200, '"Paused"'), "paused"),
        (Response(200, '{"status": "Paused"}'), "paused"),
        (Response(200, '"Cancelled"'), "inactive"),
        (Response(200, '"Completed"'), "inactive"),
        (Response(200, '"Failed"'), "inactive"),
        (Response(404), "inactive"),
        (Response(500, '"Paused"'), "active"),
        (Response(302), "active"),
        (Response(0), "active"),
        (Response(200, "[" * 10_000), "active"),
        (Response(200, "what?"), "active"),
    ],
)
def test_each_answer_has_its_meaning(response: Response, status: str) -> None:
    assert jobs.answer_of(response).job_status == status


@pytest.mark.parametrize(
    ("control", "seconds"),
    [("max-age=30", 30), ("private, Max-Age=7", 7), ("no-store", 120), ("max-age=x", 120)],
)
def test_answer_is_good_for_as_long_as_it_says(control: str, seconds: float) -> None:
    answer = jobs.answer_of(Response(200, '"Active"', {"Cache-Control": control}))
    assert answer == Answer("active", seconds)


def test_task_waits_for_the_answer_and_not_longer_than_it_may_take(make_gate: MakeGate) -> None:
    [ticket] = taken(make_gate())
    assert ticket.job_status == jobs.UNKNOWN
    row = Execution.objects.get()
    assert row.next_retry_at == NOW + jobs.WAITS_FOR
    assert not Execution.objects.backlog(SOON).exists()
    assert Execution.objects.backlog(NOW + jobs.WAITS_FOR).exists()


def test_task_without_a_url_or_with_a_fresh_answer_does_not_wait(make_gate: MakeGate) -> None:
    gate = make_gate()
    fresh = {"lastStatusCheckTime": NOW.isoformat(), "statusCheckIntervalMillis": 5_000}
    taken(gate, "t1", **fresh)
    taken(gate, "t2", statusCheckUrl=None)
    assert Execution.objects.backlog(NOW).count() == 2
    taken(gate, "t3", **fresh | {"statusCheckIntervalMillis": 0})
    assert Execution.objects.backlog(NOW).count() == 2


def test_gate_that_asks_nothing_lets_its_tasks_run(make_gate: MakeGate) -> None:
    taken(make_gate(status_check=False))
    assert Execution.objects.backlog(NOW).count() == 1


def test_task_of_an_active_job_runs(make_gate: MakeGate) -> None:
    gate = make_gate()
    taken(gate)
    assert look(gate, Service('"Active"')) == 1
    assert Execution.objects.backlog(SOON).exists()
    assert look(gate, Service('"Active"')) == 0


def test_job_is_asked_about_once_for_all_its_tasks_while_the_answer_is_good(
    make_gate: MakeGate,
) -> None:
    gate, service = make_gate(), Service('"Active"', cache_control="max-age=10")
    checker = jobs.Checker(service)
    taken(gate, "t1", "t2", "t3")
    assert look(gate, service, checker=checker) == 3
    taken(gate, "t4")
    look(gate, service, SOON + timedelta(seconds=9), checker)
    assert service.asked == 1
    taken(gate, "t5")
    look(gate, service, SOON + timedelta(seconds=11), checker)
    assert service.asked == 2


def test_task_of_a_job_that_is_over_is_cancelled_and_not_answered(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate()
    taken(gate)
    look(gate, Service(status=404))
    row = Execution.objects.get()
    assert (row.status, row.cancel_reason) == ("cancelled", "its job is over")
    later = SOON + timedelta(seconds=3)
    due = telling.claim_due([gate.queue_id], now=later, limit=10)
    assert len(telling.tell(due, gates={gate.queue_id: gate}, now=later).told) == 1
    assert not sent


def test_task_of_a_paused_job_is_asked_about_again_and_runs_when_it_goes_on(
    make_gate: MakeGate,
) -> None:
    gate = make_gate()
    taken(gate, statusCheckIntervalMillis=20_000)
    look(gate, Service('"Paused"'))
    again = SOON + timedelta(seconds=20)
    assert look(gate, Service('"Paused"'), again - timedelta(seconds=1)) == 0
    assert not Execution.objects.backlog(again).exists()
    assert look(gate, Service('"Active"'), again) == 1
    assert Execution.objects.backlog(again).exists()


def test_task_of_a_paused_job_moves_to_the_paused_queue_and_comes_back_as_a_new_ticket(
    make_gate: MakeGate, sent: Sent
) -> None:
    gate = make_gate(paused_queue="orders.paused")
    [ticket] = taken(gate)
    look(gate, Service('"Paused"'))
    later = SOON + timedelta(seconds=3)
    due = telling.claim_due([gate.queue_id], now=later, limit=10)
    telling.tell(due, gates={gate.queue_id: gate}, now=later)
    [moved] = sent
    assert (moved.routing_key, moved.body) == ("orders.paused", bytes(ticket.body or b""))
    [back] = taken(gate)
    assert back.continues_id == ticket.pk
    assert Execution.objects.open().count() == 1


def test_keeper_that_asks_about_a_ticket_is_the_only_one(make_gate: MakeGate) -> None:
    gate = make_gate()
    taken(gate)
    assert len(jobs._claim([gate.queue_id], now=SOON, limit=10)) == 1
    assert jobs._claim([gate.queue_id], now=SOON, limit=10) == []


def test_service_that_hangs_keeps_the_tasks_of_no_other_job_waiting(make_gate: MakeGate) -> None:
    gate = make_gate()
    taken(gate, "t1", statusCheckUrl="http://hangs.example/J2")
    taken(gate, "t2")
    released = threading.Event()

    def ask(url: str) -> Response:
        if url == URL:
            return Response(200, '"Active"')
        assert released.wait(10), "the other task waited for this answer"
        return Response(0)

    act_on = jobs.act_on

    def noted(answer: Answer, **about: Any) -> None:
        act_on(answer, **about)
        released.set()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jobs, "act_on", noted)
        assert jobs.Checker(ask).look({gate.queue_id: gate}, now=SOON) == 2
    assert Execution.objects.backlog(SOON).count() == 2
