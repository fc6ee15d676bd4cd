"""Accepting executions: all of a request or nothing, and a repeated key only once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from orchestrator.core import executions, messages
from orchestrator.core.executions import IdempotencyConflict, NewExecution, RequestRefused
from orchestrator.core.models import Action, Execution, ExecutionEvent, Pack
from orchestrator.core.packs import keys
from settings import muster
from tests.factories import NOW, make_action, make_worker
from tests.races import at_once
from tests.rows import reread

SCHEMA = {
    "type": "object",
    "properties": {"seconds": {"type": "number", "minimum": 0}},
    "required": ["seconds"],
}


@pytest.fixture(autouse=True)
def sleep_action(database: str, sent: list[messages.Message]) -> Action:
    return make_action(
        "core.sleep",
        parameters_schema=SCHEMA,
        timeout_seconds=42,
        queue_ttl_ms=900,
        scheduled_timeout_seconds=5,
        worker_selector={"gpu": "yes"},
        retry_policy={"max_attempts": 2, "backoff": "none"},
    )


def new(seconds: Any = 1, **values: Any) -> NewExecution:
    return NewExecution(action_ref="core.sleep", parameters={"seconds": seconds}, **values)


def request(*news: NewExecution) -> list[Execution]:
    return executions.request_many(news, requested_by="tester", now=NOW)


def test_accepted_execution_has_the_times_of_its_action_and_a_deadline(
    sent: list[messages.Message],
) -> None:
    (execution,) = request(new())
    row = Execution.objects.get()
    assert row.pk == execution.pk
    assert (row.status, row.attempt, row.requested_by) == ("requested", 0, "tester")
    assert (row.timeout_seconds, row.queue_ttl_ms) == (42, 900)
    assert row.created_at == NOW
    assert row.deadline_at == NOW + timedelta(days=1)
    assert [(m.task, m.kwargs) for m in sent] == [
        (messages.SCHEDULE, {"execution_ids": [str(execution.pk)]})
    ]


@pytest.mark.parametrize("by_setting", [False, True])
def test_action_that_was_installed_without_a_bound_runs_no_longer_than_a_request_may_ask_for(
    by_setting: bool, settings: Any
) -> None:
    """A claim reckons with the time limits of all its rows in one statement."""
    if by_setting:
        settings.MUSTER = replace(settings.MUSTER, default_timeout_seconds=1e300)
    make_action("core.endless", timeout_seconds=None if by_setting else 1e300)
    longest = executions.BOUNDS["timeout_seconds"][1]
    executions.request(NewExecution(action_ref="core.endless"), requested_by="tester", now=NOW)
    assert Execution.objects.get().timeout_seconds == longest


def test_bound_of_a_time_limit_is_that_of_packs_and_of_the_setting() -> None:
    longest = executions.BOUNDS["timeout_seconds"][1]
    assert longest == keys.LONGEST_TIMEOUT_SECONDS
    assert muster.BOUNDS["default_timeout_seconds"][1] == longest
    kept = muster.from_environment({"MUSTER_DEFAULT_TIMEOUT_SECONDS": str(longest)})
    assert kept.default_timeout_seconds == longest
    for number in (str(longest + 1), "inf", "nan"):
        message = f"MUSTER_DEFAULT_TIMEOUT_SECONDS={float(number)}: expected 0.001 to 604800"
        with pytest.raises(ImproperlyConfigured, match=message):
            muster.from_environment({"MUSTER_DEFAULT_TIMEOUT_SECONDS": number})


def test_request_overrules_its_action() -> None:
    worker = make_worker()
    values: dict[str, Any] = {
        "priority": 7,
        "timeout_seconds": 3.5,
        "queue_ttl_ms": 1_000,
        "correlation_id": "order 7",
        "idempotency_key": "7",
    }
    request(new(worker_id=worker.pk, deadline_seconds=60, **values))
    row = Execution.objects.get()
    assert {name: getattr(row, name) for name in values} == values
    assert row.pinned_worker_id == worker.pk
    assert row.deadline_at == NOW + timedelta(seconds=60)


def test_rows_come_in_the_order_of_the_request_and_are_announced_together(
    sent: list[messages.Message],
) -> None:
    rows = request(*(new(n) for n in range(30)))
    assert [row.parameters["seconds"] for row in rows] == list(range(30))
    assert Execution.objects.count() == 30
    (message,) = sent
    assert message.kwargs["execution_ids"] == [str(row.pk) for row in rows]


@pytest.mark.parametrize(
    ("refused", "pointer", "message"),
    [
        (NewExecution(action_ref="core.nothing"), "/action_ref", "'core.nothing'"),
        (NewExecution(action_ref="core.disabled"), "/action_ref", "disabled"),
        (new(-1), "/parameters/seconds", "expected at least 0, found -1"),
        (NewExecution(action_ref="core.sleep"), "/parameters", "expected the property 'seconds'"),
        (NewExecution(action_ref="core.old"), "/parameters", "schema of core.old cannot be used"),
        (new(worker_id=4711), "/worker_id", "4711"),
        (new(timeout_seconds=0), "/timeout_seconds", "expected 0.001 to 604800"),
        (new(deadline_seconds=-3), "/deadline_seconds", "expected 0.001 to 31622400"),
        (new(queue_ttl_ms=0), "/queue_ttl_ms", "expected 1 to 2147483647"),
        (new(scheduled_timeout_seconds=0), "/scheduled_timeout_seconds", "expected 0.001 to"),
        (new(worker_selector={"zone": ""}), "/worker_selector/zone", "1 to 100 characters"),
        (new(worker_selector={"a/b": "\0"}), "/worker_selector/a~1b", "printable"),
        (new(worker_selector=["zone"]), "/worker_selector", "expected a mapping"),
        (new(worker_selector={"gpu": "no"}), "/worker_selector/gpu", "asks for gpu=yes"),
        (new(retry={"max_attempts": 0}), "/retry/max_attempts", "a whole number above 0"),
        (new(retry={"tries": 2}), "/retry/tries", "unknown key, expected one of max_attempts, "),
        (NewExecution(action_ref="gone.greet"), "/action_ref", "the pack gone was removed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_refusal_refuses_all_and_leaves_no_row(
    refused: NewExecution, pointer: str, message: str, sent: list[messages.Message]
) -> None:
    make_action("core.disabled", enabled=False)
    gone = make_action("gone.greet", enabled=False)
    Pack.objects.filter(pk=gone.pack_id).update(removed_at=NOW)
    make_action("core.old", parameters_schema={"allOf": [{"$ref": "#"}]})
    with pytest.raises(RequestRefused) as error:
        request(new(), new(idempotency_key="k"), refused)
    (refusal,) = error.value.refusals
    assert (refusal.index, refusal.pointer) == (2, pointer)
    assert message in refusal.message
    assert not Execution.objects.exists()
    assert sent == []


def test_every_problem_of_every_request_is_told() -> None:
    with pytest.raises(RequestRefused) as error:
        request(new("x", timeout_seconds=0), new(), NewExecution(action_ref="no.such"))
    told = [(refusal.index, refusal.pointer) for refusal in error.value.refusals]
    assert told == [(0, "/parameters/seconds"), (0, "/timeout_seconds"), (2, "/action_ref")]


# --- idempotency keys --------------------------------------------------------------------------


def test_repeated_key_returns_the_row_of_the_first_time(sent: list[messages.Message]) -> None:
    (first,) = request(new(idempotency_key="k"))
    sent.clear()
    (again,) = executions.request_many(
        [new(idempotency_key="k")], requested_by="another", now=NOW + timedelta(hours=1)
    )
    assert again.pk == first.pk
    assert (again.requested_by, again.created_at) == ("tester", NOW)
    assert Execution.objects.count() == 1
    assert sent == []


def test_repeated_key_returns_the_row_as_it_is_now() -> None:
    (first,) = request(new(idempotency_key="k"))
    executions.cancel(execution_id=first.pk, actor="tester", now=NOW)
    (again,) = request(new(idempotency_key="k"))
    assert (again.pk, again.status) == (first.pk, "cancelled")


def test_key_twice_in_one_request_makes_one_row(sent: list[messages.Message]) -> None:
    rows = request(new(idempotency_key="k"), new(2), new(idempotency_key="k"))
    assert rows[0].pk == rows[2].pk != rows[1].pk
    assert Execution.objects.count() == 2
    assert sorted(sent[0].kwargs["execution_ids"]) == sorted({str(row.pk) for row in rows})


def test_known_and_new_keys_mix_in_one_request() -> None:
    (known,) = request(new(1, idempotency_key="a"))
    rows = request(new(2), new(1, idempotency_key="a"), new(3, idempotency_key="b"))
    assert rows[1].pk == known.pk
    assert [row.parameters["seconds"] for row in rows] == [2, 1, 3]
    assert Execution.objects.count() == 3


@pytest.mark.parametrize(
    "other",
    [new(2, idempotency_key="k"), NewExecution(action_ref="core.echo", idempotency_key="k")],
    ids=["parameters", "action"],
)
def test_key_of_something_else_is_a_conflict_and_leaves_no_row(other: NewExecution) -> None:
    make_action("core.echo")
    (first,) = request(new(idempotency_key="k"))
    with pytest.raises(IdempotencyConflict, match=str(first.pk)):
        request(new(5), other)
    assert list(Execution.objects.values_list("pk", flat=True)) == [first.pk]


def test_racing_requests_with_one_key_make_one_row() -> None:
    def ask(n: int) -> Execution:
        return request(new(n, idempotency_key=f"own {n}"), new(idempotency_key="k"))[1]

    found = at_once(*(partial(ask, n) for n in range(6)))
    assert len({row.pk for row in found}) == 1
    assert Execution.objects.count() == 7


@pytest.mark.parametrize("number", [1, 2])
def test_request_that_is_undone_is_told_to_nobody(
    number: int, sent: list[messages.Message]
) -> None:
    with transaction.atomic():
        assert len(request(*[new()] * number)) == number
        assert sent == [], "told before the commit"
        transaction.set_rollback(True)
    assert sent == []
    assert not Execution.objects.exists()


def test_request_writes_no_history() -> None:
    request(new())
    assert not ExecutionEvent.objects.exists()


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"parameters": {"m": "\x00"}}, "/parameters/m"),
        ({"parameters": {"m": "\ud800"}}, "/parameters/m"),
        ({"parameters": {"m": float("nan")}}, "/parameters/m"),
        ({"parameters": [1]}, "/parameters"),
        ({"timeout_seconds": float("nan")}, "/timeout_seconds"),
        ({"deadline_seconds": float("inf")}, "/deadline_seconds"),
        ({"deadline_seconds": 1e-9}, "/deadline_seconds"),
        ({"priority": 100_000}, "/priority"),
        ({"queue_ttl_ms": 2**40}, "/queue_ttl_ms"),
        ({"idempotency_key": ""}, "/idempotency_key"),
        ({"idempotency_key": "k" * 300}, "/idempotency_key"),
        ({"correlation_id": "\x00"}, "/correlation_id"),
        ({"worker_id": 2**70}, "/worker_id"),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused(values: dict[str, Any], pointer: str) -> None:
    make_action()
    with pytest.raises(RequestRefused) as refused:
        executions.request(
            NewExecution(action_ref="core.echo", **values), requested_by="t", now=NOW
        )
    assert [refusal.pointer for refusal in refused.value.refusals] == [pointer]
    assert not Execution.objects.exists()


def test_request_adds_labels_and_overrules_parts_of_the_retry_policy() -> None:
    plain, own = request(
        new(), new(worker_selector={"zone": "b"}, retry={"max_attempts": 5, "jitter": 0})
    )
    assert (plain.worker_selector, plain.retry_policy) == (None, None), "as its action has them"
    assert plain.wanted_labels == {"gpu": "yes"}
    assert plain.wanted_retries == {"max_attempts": 2, "backoff": "none"}
    row = reread(own)
    assert row.wanted_labels == {"gpu": "yes", "zone": "b"}
    assert row.wanted_retries == {"max_attempts": 5, "backoff": "none", "jitter": 0}


@pytest.mark.parametrize(
    ("asked", "ttl_ms"),
    [
        ({"queue_ttl_ms": 2_000, "scheduled_timeout_seconds": 9}, 2_000),
        ({"queue_ttl_ms": 2_000, "scheduled_timeout_seconds": 1.5}, 1_500),
        ({"queue_ttl_ms": 300_000, "scheduled_timeout_seconds": 300}, 300_000),
        ({"queue_ttl_ms": 10_000}, 5_000),
        ({}, 900),
    ],
)
def test_longest_wait_for_a_worker_is_the_shortest_of_its_limits(
    asked: dict[str, Any], ttl_ms: int
) -> None:
    assert request(new(**asked))[0].dispatch_ttl_ms == ttl_ms


@pytest.mark.parametrize(
    ("asked", "pointer", "message"),
    [
        (
            {"queue_ttl_ms": 300_001},
            "/queue_ttl_ms",
            "expected at most 300000 (the TTL of a worker's queue, MUSTER_WORKER_QUEUE_TTL_MS), "
            "found 300001",
        ),
        (
            {"scheduled_timeout_seconds": 300.5},
            "/scheduled_timeout_seconds",
            "expected at most 300 (the TTL of a worker's queue, MUSTER_WORKER_QUEUE_TTL_MS), "
            "found 300.5",
        ),
    ],
)
def test_wait_beyond_the_queues_ttl_is_refused_and_not_cut(
    asked: dict[str, Any], pointer: str, message: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        request(new(), new(**asked))
    assert refused.value.refusals == [executions.Refusal(1, pointer, message)]
    assert not Execution.objects.exists()


def test_wait_of_an_action_that_a_lowered_ttl_has_overtaken_is_the_queues(settings: Any) -> None:
    make_action("core.patient", queue_ttl_ms=200_000)
    settings.MUSTER = replace(settings.MUSTER, worker_queue_ttl_ms=100_000)
    (row,) = request(NewExecution(action_ref="core.patient"))
    assert row.dispatch_ttl_ms == 100_000


def test_pin_to_a_retired_worker_is_refused() -> None:
    worker = make_worker(status="inactive", retired_at=NOW)
    with pytest.raises(RequestRefused, match="the worker w1 is retired"):
        request(new(worker_id=worker.pk))
