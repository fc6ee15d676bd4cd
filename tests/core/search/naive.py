"""What a search means, in Python alone: every row is compared with every term."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from orchestrator.core.models import Execution
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import OPEN, TERMINAL
from tests.factories import NOW
from tests.principals import ROOT

Test = Callable[[Execution], bool]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2026, 2, number, hour, tzinfo=UTC)


def ran(row: Execution) -> timedelta | None:
    return (row.ended_at or NOW) - row.started_at if row.started_at else None


def waited(row: Execution) -> timedelta:
    return (row.started_at or row.ended_at or NOW) - row.created_at


def has_run(test: Callable[[timedelta], bool]) -> Test:
    return lambda row: (took := ran(row)) is not None and test(took)


def says(*texts: str) -> Test:
    def test(row: Execution) -> bool:
        message = shown.messages([row], seen_by=ROOT).get(row.pk, "")
        return any(text.lower() in message.lower() for text in texts)

    return test


def given(*values: object, at: Callable[[dict], object]) -> Test:
    def test(row: Execution) -> bool:
        value = at(row.parameters)
        return any(type(value) is type(each) and value == each for each in values)

    return test


def order(parameters: dict) -> object:
    return parameters.get("order")


def inner(parameters: dict) -> object:
    within = parameters.get("order")
    return within.get("id") if isinstance(within, dict) else None


TERMS: dict[str, Test] = {
    "status:failed": lambda row: row.status == "failed",
    "status:failed,timeout": lambda row: row.status in ("failed", "timeout"),
    "status:running": lambda row: row.status == "running",
    "status:open": lambda row: row.status in OPEN,
    "status:ended": lambda row: row.status in TERMINAL,
    "status:open,completed": lambda row: row.status in OPEN or row.status == "completed",
    "is:overdue": lambda row: row.status in OPEN and row.deadline_at <= NOW,
    "reason:worker_lost": lambda row: row.reason == "worker_lost",
    "reason:worker_lost,succeeded": lambda row: row.reason in ("worker_lost", "succeeded"),
    "action:core.echo": lambda row: row.action_ref == "core.echo",
    "action:core.*": lambda row: row.action_ref.startswith("core."),
    "action:core.echo,shop.*": lambda row: row.action_ref in ("core.echo", "shop.charge"),
    "worker:w1": lambda row: row.worker_name == "w1",
    "worker:w*": lambda row: (row.worker_name or "").startswith("w"),
    "worker:printer-7,w2": lambda row: row.worker_name in ("printer-7", "w2"),
    "queue:default": lambda row: row.queue is None,
    "queue:*": lambda row: row.queue is not None,
    "queue:mail*": lambda row: (row.queue or "").startswith("mail"),
    "queue:mail_*": lambda row: (row.queue or "").startswith("mail_"),
    "by:user:ada": lambda row: row.requested_by == "user:ada",
    "by:*": lambda row: True,
    "by:user:*": lambda row: row.requested_by.startswith("user:"),
    "by:user:A*": lambda row: row.requested_by.startswith("user:A"),
    "attempt:2": lambda row: row.attempt == 2,
    "attempt:>1": lambda row: row.attempt > 1,
    "attempt:1..2": lambda row: 1 <= row.attempt <= 2,
    "attempt:0,4": lambda row: row.attempt in (0, 4),
    "created:<1h": lambda row: row.created_at > NOW - seconds(3600),
    "created:>=1h": lambda row: row.created_at <= NOW - seconds(3600),
    "created:1h..2d": lambda row: NOW - seconds(172800) <= row.created_at <= NOW - seconds(3600),
    "created:2026-02-27..": lambda row: row.created_at >= day(27),
    "created:..2026-02-27": lambda row: row.created_at < day(28),
    "created:2026-02-27": lambda row: day(27) <= row.created_at < day(28),
    "created:>2026-02-27": lambda row: row.created_at >= day(28),
    "created:<2026-02-27T12:00Z": lambda row: row.created_at < day(27, 12),
    "ran:>5s": has_run(lambda took: took > seconds(5)),
    "ran:<=5s": has_run(lambda took: took <= seconds(5)),
    "ran:500ms..5s": has_run(lambda took: seconds(0.5) <= took <= seconds(5)),
    "waited:>4s": lambda row: waited(row) > seconds(4),
    "waited:..4s": lambda row: waited(row) <= seconds(4),
    "waited:<5m1.5s": lambda row: waited(row) < seconds(301.5),
    'message:"no route"': says("no route"),
    "message:printer7,DECLINED": says("printer7", "declined"),
    'message:"50 %"': says("50 %"),
    "message:under_score": says("under_score"),
    "message:über": says("über"),
    "message:hunter22": lambda row: False,
    "message:shop": says("shop"),
    "param.order:7": given(7, "7", at=order),
    'param.order:"7"': given("7", at=order),
    "param.order:7.5,8": given(7.5, at=order),
    'param.order.id:"a b"': given("a b", at=inner),
    "param.pin:1234": lambda row: False,
    "correlation:batch-1": lambda row: row.correlation_id == "batch-1",
    "batch-2": lambda row: row.correlation_id == "batch-2",
    "echo": lambda row: row.action_ref == "core.echo",
    "core": lambda row: row.action_ref.startswith("core."),
    "batch-2,shop": lambda row: row.correlation_id == "batch-2" or row.action_ref == "shop.charge",
    "nothing-has-this": lambda row: False,
}


def matching(query: Collection[str], rows: Collection[Execution]) -> list[Execution]:
    """The rows that meet all of these terms, each of which may begin with a minus."""
    tests = [(TERMS[term.removeprefix("-")], not term.startswith("-")) for term in query]
    return [row for row in rows if all(test(row) is wanted for test, wanted in tests)]
