"""What a look at the backlog reads is what its querysets say, whatever the database."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from django.db import transaction

from orchestrator.core.models import Action, Execution, Worker, backlog
from tests.factories import NOW, make_action, make_execution, make_worker, seconds

pytestmark = pytest.mark.usefixtures("database")

RUNTIMES = ("python", "shell", "held", "gone")

Read = Callable[[], list[Execution]]
Both = Callable[[Read], tuple[list[Execution], ...]]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    """Read with the statements, if this database takes them, and with the queries."""

    def read_twice(read: Read) -> tuple[list[Execution], ...]:
        with transaction.atomic(), monkeypatch.context() as patched:
            by_statement = read()
            patched.setattr(backlog, "connection", SimpleNamespace(vendor="other"))
            return by_statement, read()

    return read_twice


@pytest.fixture
def rows() -> list[Execution]:
    chance = random.Random(7)
    actions = [make_action(f"core.a_{runtime}", runtime=runtime) for runtime in RUNTIMES]
    pinned = make_worker("pinned")
    return [_any(chance, chance.choice(actions), pinned) for _ in range(300)]


def _any(chance: random.Random, action: Action, pinned: Worker) -> Execution:
    status = chance.choice(["requested", "scheduling", "scheduling", "scheduled", "completed"])
    wait = chance.choice([None, NOW, NOW + seconds(1), NOW + seconds(60)])
    is_open = status in ("requested", "scheduling")
    queue = chance.choice([None, None, "a", "b"])
    return make_execution(
        status,
        action=action,
        queue=queue,
        lane=queue and "input",
        priority=chance.randint(-2, 2),
        pinned_worker=chance.choice([pinned, None, None]),
        worker_selector=chance.choice([None, {}, {"gpu": "yes", "zone": "a"}]),
        lost_workers=chance.choice([0, 0, 2]),
        next_retry_at=wait if is_open else None,
        wait_reason=chance.choice(["", "full", "policy p"]) if is_open else "",
        deadline_at=NOW + seconds(chance.choice([-1, 60, 60])),
    )


def _same(found: tuple[list[Execution], ...]) -> list[Execution]:
    """Check that both are the same in each column that is read, and in their actions."""
    by_statement, by_query = found
    assert by_statement == by_query
    for one, other in zip(by_statement, by_query, strict=True):
        assert one.get_deferred_fields() == other.get_deferred_fields()
        for field in Execution._meta.concrete_fields:
            if field.attname not in one.get_deferred_fields():
                assert getattr(one, field.attname) == getattr(other, field.attname), field
        assert one.action == other.action
    return by_statement


def test_named(rows: list[Execution], both: Both) -> None:
    some = [row.pk for row in rows[::2]]
    found = _same(both(lambda: backlog.named(some, now=NOW)))
    waiting = {row.pk for row in Execution.objects.backlog(NOW)}
    assert {row.pk for row in found} == waiting & set(some) != set()


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize(
    "choice",
    [
        backlog.Choice(runtimes=["python"], known_runtimes=["python", "shell", "held"]),
        backlog.Choice(runtimes=[], known_runtimes=["python"]),
        backlog.Choice(runtimes=[], known_runtimes=[]),
        backlog.Choice(["python", "shell"], RUNTIMES, paused_actions=["core.a_python"]),
    ],
)
def test_first_of_default(
    rows: list[Execution],
    both: Both,
    choice: backlog.Choice,
    limit: int,
) -> None:
    found = _same(both(lambda: backlog.first_of_default(choice, limit=limit, now=NOW)))
    expected = [
        row.pk
        for row in Execution.objects.backlog(NOW).in_queue(None).select_related("action")
        if row.action_ref not in choice.paused_actions
        and (
            row.action.runtime in choice.runtimes
            or row.action.runtime not in choice.known_runtimes
            or row.pinned_worker_id is not None
        )
    ]
    assert [row.pk for row in found] == expected[:limit] != []


def test_first_of_default_without_one(rows: list[Execution], both: Both) -> None:
    every = backlog.Choice(RUNTIMES, RUNTIMES)
    with transaction.atomic():
        first, *others = backlog.first_of_default(every, limit=9, now=NOW)
    without = backlog.Choice(RUNTIMES, RUNTIMES, without=first.pk)
    assert _same(both(lambda: backlog.first_of_default(without, limit=8, now=NOW))) == others


def test_what_asks_for_the_same_as_a_busy_one_is_passed(rows: list[Execution], both: Both) -> None:
    every = Execution.objects.backlog(NOW).select_related("action")
    of_default, of_a = every.in_queue(None), every.in_queue("a")
    busy = [of_default[0].pk, of_default[20].pk, of_a[0].pk]
    left_out = {_asked(row) for row in every.filter(pk__in=busy)}
    choice = backlog.Choice(RUNTIMES, RUNTIMES, busy=busy)

    found = _same(both(lambda: backlog.first_of_default(choice, limit=500, now=NOW)))
    assert found == [row for row in of_default if _asked(row) not in left_out] != []
    found = _same(both(lambda: backlog.first_of_queues({"a": 500}, now=NOW, busy=busy)))
    assert found == [row for row in of_a if _asked(row) not in left_out] != []


def _asked(row: Execution) -> tuple[object, ...]:
    values = [getattr(row, name) for name in backlog.ASKED]
    return *(str(value) for value in values), row.is_suspect


@pytest.mark.parametrize("number", [1, 3, 100])
def test_first_of_queues(
    rows: list[Execution],
    both: Both,
    number: int,
) -> None:
    wanted = {"a": number, "c": 1, "b": number}
    found = _same(both(lambda: backlog.first_of_queues(wanted, now=NOW)))
    for name in wanted:
        expected = list(Execution.objects.backlog(NOW).in_queue(name)[:number])
        assert [row for row in found if row.queue == name] == expected
    assert [row.queue for row in found][:2] == ["a", "b"], "in turns"


def test_queues_with_work(rows: list[Execution], monkeypatch: pytest.MonkeyPatch) -> None:
    assert backlog.queues_with_work(["c", "b", "a"], now=NOW) == ["b", "a"]
    monkeypatch.setattr(backlog, "connection", SimpleNamespace(vendor="other"))
    assert backlog.queues_with_work(["c", "b", "a"], now=NOW) == ["b", "a"]
