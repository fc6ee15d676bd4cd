"""A slot of a pool of threads looks for what is next itself; the loop does the rest."""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.thread import TaskPool
from celery.utils.functional import noop

from orchestrator.core.executions import Contents
from orchestrator.core.models import Action, Execution
from orchestrator.core.reasons import Reason
from settings.celery import app
from tests.factories import NOW, seconds
from tests.garbage import uncollected
from tests.waiting import wait_until
from workers import child, hiding, probes
from workers.agent import Agent
from workers.attempts import Attempt
from workers.bootsteps import AgentStep
from workers.loop import Loop
from workers.runtimes import Call, Outcome
from workers.runtimes.protocol import completed, not_begun

PATH = "/packs/core"


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An agent with one slot; `woken` has each call for its loop, which does not turn."""
    monkeypatch.setattr("workers.desk.state.task_ready", lambda *_: None)
    agent: Any = Agent(worker_id=1, capacity=1, pool_kind="thread")
    agent.woken = []
    agent.loop.wake = lambda: agent.woken.append("woken")
    agent.releases.path_for = lambda execution: PATH
    agent.fed = threading.Event()
    agent.desk.pool = TaskPool(1, app=app)
    agent.desk.pool.start()
    yield agent
    agent.fed.set()
    agent.desk.pool.stop()


@pytest.fixture
def ran(agent: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """What was run, in which thread. An action calls the function in its parameters."""
    ran: list[tuple[Any, str]] = []

    def run(call: Call) -> Outcome:
        agent.fed.wait(10)
        ran.append((call.execution_id, threading.current_thread().name))
        if do := call.parameters.get("do"):
            do()
        return completed({})

    monkeypatch.setattr(child, "run", run)
    return ran


def ready(agent: Any, number: int, *, do: Callable[[], Any] | None = None) -> list[Any]:
    """Attempts that are claimed and wait for the slot. The first calls `do` as it runs."""
    attempts = [claimed(agent, {"do": do} if do and not n else {}) for n in range(number)]
    agent.desk.ready.extend(attempts)
    return attempts


def feed(agent: Any) -> None:
    """One turn of the loop. Nothing ends before it is over."""
    agent.desk.claim_waiting()
    agent.fed.set()


def claimed(agent: Any, parameters: dict[str, Any] | None = None) -> Any:
    attempt: Any = Attempt.__new__(Attempt)
    id = uuid.uuid4()
    attempt.execution_id, attempt.number, attempt.id = id, 1, f"{id}.1"
    attempt.execution = SimpleNamespace(pk=id, attempt=1, key=attempt.key)
    attempt.contents = Contents(parameters or {})
    attempt.claimed_at, attempt.desk, attempt.time_start = 0.0, agent.desk, 1.0
    attempt.send_event = noop
    attempt.on_accepted = noop
    attempt.masker = hiding.NOTHING
    attempt.begin = lambda *, pack_path: SimpleNamespace(
        execution_id=id, parameters=attempt.contents.parameters, pack_path=pack_path
    )
    agent.desk.claimed[attempt.key] = attempt
    return attempt


def is_idle(agent: Any) -> bool:
    """Whether the thread of the pool has returned to it."""
    returned = threading.Event()
    agent.desk.pool.apply_async(returned.set, callback=noop)
    return returned.wait(10)


def ends(agent: Any) -> dict[Any, Reason]:
    """The reasons of what has ended, by execution."""
    recorded = {}
    while not agent.finisher.ends.empty():
        end = agent.finisher.ends.get()
        recorded[end.execution.pk] = end.reason
    return recorded


def test_slot_runs_what_is_ready_in_its_order_while_the_loop_does_nothing(
    agent: Any, ran: list[tuple[Any, str]]
) -> None:
    attempts = ready(agent, 5)

    feed(agent)

    assert is_idle(agent)
    assert [id for id, _ in ran] == [each.execution_id for each in attempts]
    assert len({thread for _, thread in ran}) == 1
    assert ends(agent) == dict.fromkeys([each.execution_id for each in attempts], Reason.SUCCEEDED)
    assert not agent.desk.claimed
    assert agent.woken == [], "nothing waits, and nothing is left"


def test_slot_leaves_what_is_late_to_the_loop(agent: Any) -> None:
    (late,) = ready(agent, 1)
    late.begin_by = 0.0
    assert agent.desk._take_plain() is None
    late.begin_by = math.inf
    assert agent.desk._take_plain() == (late, PATH)


@pytest.mark.parametrize("is_canceling", [False, True])
def test_what_did_not_begin_goes_back_unless_it_is_cancelled(
    agent: Any, monkeypatch: pytest.MonkeyPatch, is_canceling: bool
) -> None:
    """The pool had it, and brought it to a process or thread too late."""
    monkeypatch.setattr(child, "run", lambda call: not_begun())
    given_back: list[Any] = []
    agent.returns.give_back_soon = lambda unbegun, reason: given_back.extend(unbegun)
    late = claimed(agent)
    late.is_canceling = is_canceling
    late.start(agent.desk.pool, pack_path=PATH)

    assert is_idle(agent)
    assert given_back == ([] if is_canceling else [late.execution])
    assert ends(agent) == ({late.execution_id: Reason.CANCELLED_RUNNING} if is_canceling else {})
    assert late.key not in agent.desk.claimed


def test_time_since_the_claim_counts_to_the_deadline() -> None:
    attempt: Any = Attempt.__new__(Attempt)
    attempt.execution = Execution(
        action=Action(ref="core.echo", runtime="python"), timeout_seconds=600,
        started_at=NOW, deadline_at=NOW + seconds(12),
    )  # fmt: skip
    attempt.contents, attempt.claimed_at = Contents({}), time.monotonic() - 5
    attempt.begin_by = attempt.claimed_at + 5.5
    call = attempt.begin(pack_path=PATH)
    assert call.begin_by == attempt.begin_by
    assert 6 < call.timeout_seconds <= 7


def test_no_more_run_at_once_than_there_are_slots(agent: Any, ran: list[tuple[Any, str]]) -> None:
    """The loop may have given the slot that becomes free to another one before its thread looks."""
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(10)

    ready(agent, 3, do=hold)
    feed(agent)
    assert begun.wait(10)
    assert agent.desk._take_plain() is None
    go_on.set()
    assert is_idle(agent)
    assert len(ran) == 3


@pytest.mark.parametrize("what", ["cancelled", "refused", "paused", "without its release"])
def test_slot_leaves_to_the_loop_what_does_not_simply_begin(
    agent: Any, ran: list[tuple[Any, str]], what: str
) -> None:
    first, second = ready(agent, 2)
    if what == "cancelled":
        second.is_canceling = True
    elif what == "refused":
        second.contents = Contents({}, refusal="no key")
    elif what == "paused":
        agent.pauses.holds = lambda execution: execution is second.execution
    else:
        agent.releases.path_for = lambda execution: PATH if execution is first.execution else None

    feed(agent)

    assert is_idle(agent)
    assert [id for id, _ in ran] == [first.execution_id]
    assert list(agent.desk.ready) == [second]
    assert agent.woken == ["woken"]


def test_slot_of_a_worker_that_stops_begins_nothing(agent: Any, ran: list[tuple[Any, str]]) -> None:
    first, second = ready(agent, 2, do=lambda: setattr(agent, "is_stopping", True))

    feed(agent)

    assert is_idle(agent)
    assert [id for id, _ in ran] == [first.execution_id]
    assert agent.desk.take_back(older_than_seconds=0) == [second.execution]
    assert agent.desk.take_unbegun() == []


def test_slot_takes_what_it_has_looked_at(agent: Any, ran: list[tuple[Any, str]]) -> None:
    """Another one, whose release has come, is put before that: it would run from the wrong
    folder."""
    first, second = ready(agent, 2)
    brought = claimed(agent)
    agent.capacity = 2  # it keeps one, while it waits for its release
    bringing = threading.Thread(target=lambda: agent.desk.go_on([brought]))

    def path_for(execution: Any) -> str:
        if execution is second.execution and not bringing.ident:
            bringing.start()
            bringing.join(0.2)
        return str(execution.pk)

    agent.releases.path_for = path_for
    paths = {}
    for each in (first, second, brought):
        begin = each.begin
        each.begin = lambda *, pack_path, id=each.execution_id, begin=begin: (
            paths.update({str(id): pack_path}) or begin(pack_path=pack_path)
        )

    feed(agent)

    wait_until(lambda: not agent.desk.claimed)
    bringing.join(10)
    assert len(ran) == 3
    assert all(id == path for id, path in paths.items())


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_slots_begin_nothing_more_when_the_loop_has_ended(
    agent: Any, ran: list[tuple[Any, str]], how: str
) -> None:
    """Celery ends a worker by itself, too, and then nobody has said that it stops."""
    first, *others = ready(agent, 4)
    agent.desk.claim_waiting()

    getattr(AgentStep.__new__(AgentStep), how)(SimpleNamespace(muster_agent=agent))

    agent.fed.set()
    agent.desk.pool.stop()
    assert [id for id, _ in ran] == [first.execution_id]
    back = agent.desk.take_back(older_than_seconds=0)
    assert back == [each.execution for each in others]


def test_what_its_slot_runs_has_begun(agent: Any, ran: list[tuple[Any, str]]) -> None:
    """A worker that stops gives back what has not."""
    unbegun: list[Any] = []
    first, second = ready(agent, 2)
    second.contents = Contents({"do": lambda: unbegun.extend(agent.desk.take_unbegun())})

    feed(agent)

    assert is_idle(agent)
    assert len(ran) == 2
    assert unbegun == []
    assert first.job is second.job is None, "nothing of them stays"


def test_attempt_that_a_slot_cannot_begin_ends_and_the_next_one_runs(
    agent: Any, ran: list[tuple[Any, str]]
) -> None:
    first, broken, third = ready(agent, 3)

    def begin(*, pack_path: str) -> None:
        raise LookupError("no such action")

    broken.begin = begin

    feed(agent)

    assert is_idle(agent)
    assert [id for id, _ in ran] == [first.execution_id, third.execution_id]
    assert ends(agent)[broken.execution_id] == Reason.PROCESS_LOST
    assert not agent.desk.claimed


def test_slot_whose_action_tears_down_its_call_goes_on(
    agent: Any, ran: list[tuple[Any, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.attempts.processes.terminate", lambda *_, **__: 0)

    def leave() -> None:
        raise SystemExit

    first, second = ready(agent, 2, do=leave)

    feed(agent)

    wait_until(lambda: first.key not in agent.desk.claimed)
    agent.desk.claim_waiting()  # that it is lost was found in another thread, which wakes the loop
    assert is_idle(agent)
    assert ends(agent) == {
        first.execution_id: Reason.PROCESS_LOST,
        second.execution_id: Reason.SUCCEEDED,
    }


def test_slot_has_the_loop_claim_as_soon_as_that_is_worth_it(
    agent: Any, ran: list[tuple[Any, str]]
) -> None:
    ready(agent, 2)
    agent.desk.waiting.append(claimed(agent))
    agent.desk.claimed.popitem()

    feed(agent)

    assert is_idle(agent)
    assert agent.woken
    feed(agent)
    assert agent.desk.claiming == 1


def test_errand_of_a_probe_comes_before_what_is_ready(
    agent: Any, ran: list[tuple[Any, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that ends one attempt after the other, for as long as there is work, would keep the
    errand waiting, and the worker would count as ill."""
    probe = probes.PoolProbe(agent)
    first, second = ready(agent, 2)

    def submit(attempt: Any) -> None:
        # its slot is idle, as far as is known, and its thread about to look for what is next
        if attempt is first:
            probe._submit(threading.Event())

    monkeypatch.setattr("workers.desk.state.task_ready", submit)
    feed(agent)

    wait_until(lambda: bool(probe.asked) and not probe._unanswered())
    assert [id for id, _ in ran] == [first.execution_id]
    assert list(agent.desk.ready) == [second]
    assert agent.woken == ["woken"], "the loop does what the slot does not"


@pytest.mark.parametrize("is_connected", [True, False])
def test_slots_go_on_by_themselves_when_the_probe_is_answered(
    agent: Any, ran: list[tuple[Any, str]], monkeypatch: pytest.MonkeyPatch, is_connected: bool
) -> None:
    monkeypatch.setattr(Loop, "is_connected", is_connected)
    monkeypatch.setattr(agent.loop, "call_soon", lambda do: do())
    agent.desk.begin_probe()  # of which nothing came
    assert probes.PoolProbe(agent).ask() is None
    attempts = ready(agent, 3)

    feed(agent)

    assert is_idle(agent)
    assert len(ran) == len(attempts)


def test_pool_keeps_nothing_of_what_ended_in_a_slot_that_goes_on(
    agent: Any, ran: list[tuple[Any, str]]
) -> None:
    """Neither its parameters nor its secrets."""
    first, second = ready(agent, 2)
    gone = weakref.ref(first)
    is_gone: list[bool] = []
    is_left = threading.Event()

    def look() -> None:
        is_left.wait(10)
        is_gone.append(gone() is None)

    second.contents = Contents({"do": look})
    with uncollected():
        feed(agent)
        first.begin = None
        del first
        is_left.set()
        wait_until(lambda: bool(is_gone))
    assert is_idle(agent)
    assert is_gone == [True]
