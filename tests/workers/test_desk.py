"""The order on a worker: claim, then start, then acknowledge; and nothing else is started."""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.prefork import TaskPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.utils.functional import noop
from kombu.asynchronous import Hub, set_event_loop

from orchestrator.core.executions import RETRY_AFTER, Contents
from orchestrator.core.reasons import Reason
from settings.celery import app
from tests.factories import NOW, seconds
from tests.garbage import uncollected
from workers import hiding
from workers.agent import Agent
from workers.attempts import Attempt
from workers.host import Answer


class Offered:
    """A dispatch message as the desk sees it, that notes down what becomes of it."""

    job: Any = None
    slot_goes_on = is_canceling = False
    masker = hiding.NOTHING
    ran_ns = (0, 0)
    execution: Any
    claimed_at = 0.0
    begin_by = math.inf
    is_late = Attempt.is_late

    def __init__(self, story: list[str], execution_id: uuid.UUID, number: int = 1) -> None:
        self.id = f"{execution_id}.{number}"
        self.story, self.execution_id, self.number = story, execution_id, number
        self.key = (execution_id, number)
        self.execution = SimpleNamespace(key=self.key)

    def acknowledge_message(self) -> None:
        self.story.append("acknowledged")

    def start(self, pool: Any, *, pack_path: str) -> None:
        self.story.append("started")


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told of what is ready: no message of these tests is Celery's."""
    monkeypatch.setattr("workers.desk.state.task_ready", lambda *_: None)


def answer(
    agent: Agent,
    *granted: tuple[uuid.UUID, int],
    held: Collection[tuple[uuid.UUID, int]] = (),
    contents: Contents | None = None,
    seconds_ago: float = 0.0,
    deadline_seconds: float = 3600.0,
) -> None:
    """The claimer comes back: these were claimed, at these attempts."""
    batch = agent.claimer.asked.get_nowait()
    action = SimpleNamespace(pack=SimpleNamespace(path="/nowhere"))
    times = {"started_at": NOW, "deadline_at": NOW + seconds(deadline_seconds)}
    rows: Any = [
        SimpleNamespace(pk=key[0], attempt=key[1], key=key, release_id=None, action=action, **times)
        for key in granted
    ]
    given = {row.pk: contents or Contents({}) for row in rows}
    maskers = {row.pk: hiding.masker_of(given[row.pk].secrets) for row in rows}
    asked_at = time.monotonic() - seconds_ago
    agent.claimer.answers.append(Answer(batch, rows, held, given, maskers, asked_at))
    agent.desk.claim_waiting()


def offer(agent: Agent, *offered: Offered) -> None:
    agent.desk.offer(offered)  # type: ignore[arg-type]
    agent.desk.claim_waiting()


def test_message_is_started_after_its_claim_and_acknowledged_after_that(agent: Agent) -> None:
    story: list[str] = []
    one = Offered(story, uuid.uuid4())

    offer(agent, one)
    assert story == []
    answer(agent, (one.execution_id, 1))

    assert story == ["started", "acknowledged"]


def test_message_whose_claim_was_refused_is_acknowledged_and_not_started(agent: Agent) -> None:
    story: list[str] = []
    offer(agent, Offered(story, uuid.uuid4()))

    answer(agent)

    assert story == ["acknowledged"]


def test_what_was_claimed_starts_though_the_broker_has_gone_before_it_is_acknowledged(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(attempt: Offered) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(Offered, "acknowledge_message", gone)
    story: list[str] = []
    one = Offered(story, uuid.uuid4())
    offer(agent, one)

    with pytest.raises(ConnectionResetError):
        answer(agent, (one.execution_id, 1))

    assert story == ["started"]


def test_of_two_copies_in_one_batch_one_is_started(agent: Agent) -> None:
    story: list[str] = []
    id = uuid.uuid4()
    offer(agent, Offered(story, id), Offered(story, id))

    answer(agent, (id, 1))

    assert story.count("started") == 1
    assert story.count("acknowledged") == 2


def test_nothing_of_an_attempt_stays_when_it_has_ended(agent: Agent) -> None:
    one = Offered([], uuid.uuid4())
    offer(agent, one)
    answer(agent, (one.execution_id, 1))
    one.job = SimpleNamespace(callback=one.acknowledge_message)  # as a pool's job knows its attempt
    gone = weakref.ref(one)

    with uncollected():
        agent.desk.ended(one, Reason.SUCCEEDED, {})  # type: ignore[arg-type]
        del one
        assert gone() is None


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_claim_of_one_attempt_is_not_taken_by_the_message_of_another(
    agent: Agent, order: tuple[int, int]
) -> None:
    id = uuid.uuid4()
    stories: dict[int, list[str]] = {1: [], 2: []}
    offer(agent, *(Offered(stories[number], id, number) for number in order))

    answer(agent, (id, 2))

    assert stories == {1: ["acknowledged"], 2: ["started", "acknowledged"]}
    assert set(agent.desk.claimed) == {(id, 2)}


def test_what_another_transaction_holds_stays_unacknowledged_and_is_asked_for_later(
    agent: Agent,
) -> None:
    story: list[str] = []
    one = Offered(story, uuid.uuid4())
    offer(agent, one)

    answer(agent, held=[one.key])
    assert story == []
    assert agent.claimer.asked.empty(), "not at once"

    agent.desk.ask_again_for_held()
    agent.desk.claim_waiting()
    answer(agent, one.key)
    assert story == ["started", "acknowledged"]


def test_what_is_held_makes_room_for_others_behind_it(agent: Agent) -> None:
    agent.loop.consumer = SimpleNamespace(qos=SimpleNamespace(value=1))
    held = [Offered([], uuid.uuid4()) for _ in range(2)]
    offer(agent, *held)
    answer(agent, held=[each.key for each in held])

    agent.desk.pool = SimpleNamespace(maintain_pool=lambda: None)
    agent.loop._on_tick()

    assert agent.loop.consumer.qos.value >= 2 * agent.capacity + 2
    assert agent.desk.claiming == 2, "and it is asked for again"


def test_attempt_is_in_hand_from_the_question_until_its_claim_is_refused(agent: Agent) -> None:
    one = Offered([], uuid.uuid4())
    assert one.key not in agent.desk.in_hand
    offer(agent, one)
    assert one.key in agent.desk.in_hand

    answer(agent)
    assert one.key not in agent.desk.in_hand


def test_second_message_of_what_runs_does_not_take_it_out_of_hand(agent: Agent) -> None:
    one, copy = Offered([], id := uuid.uuid4()), Offered([], id)
    offer(agent, one)
    answer(agent, one.key)
    offer(agent, copy)
    answer(agent)

    assert one.key in agent.desk.in_hand


def test_whole_batch_runs_though_the_connection_is_gone_when_it_is_acknowledged(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    story: list[str] = []
    two = [Offered(story, uuid.uuid4()) for _ in range(2)]
    offer(agent, *two)

    def acknowledge() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(two[0], "acknowledge_message", acknowledge)
    with pytest.raises(BrokenPipeError):  # Celery's loop makes a new connection
        answer(agent, *((each.execution_id, 1) for each in two))
    agent.desk.claim_waiting()

    assert story.count("started") == 2


def test_message_of_another_attempt_than_was_claimed_is_not_started(agent: Agent) -> None:
    story: list[str] = []
    old = Offered(story, uuid.uuid4(), number=1)
    offer(agent, old)

    answer(agent, (old.execution_id, 2))

    assert story == ["acknowledged"]


def test_message_waits_unacknowledged_while_the_database_is_away(agent: Agent) -> None:
    story: list[str] = []
    offer(agent, Offered(story, uuid.uuid4()))
    batch = agent.claimer.asked.get_nowait()

    agent.claimer.answers.append(Answer(batch, None))
    agent.desk.claim_waiting()

    assert story == []
    assert agent.claimer.asked.get_nowait() == batch, "asked again"


def test_no_more_is_claimed_than_there_are_slots(agent: Agent) -> None:
    offer(agent, *(Offered([], uuid.uuid4()) for _ in range(5)))

    asked = [len(agent.claimer.asked.get_nowait()) for _ in range(agent.claimer.asked.qsize())]

    assert sum(asked) == agent.capacity
    assert len(agent.desk.waiting) == 5 - agent.capacity


def test_idle_worker_claims_at_once_and_a_busy_one_when_its_loop_turns(agent: Agent) -> None:
    for _ in range(2):
        agent.desk.offer([Offered([], uuid.uuid4())])  # type: ignore[list-item]
    assert agent.claimer.asked.qsize() == 1

    agent.desk.claim_waiting()
    assert agent.claimer.asked.qsize() == 2


def test_nothing_is_claimed_by_a_worker_that_stops(agent: Agent) -> None:
    agent.is_stopping = True

    offer(agent, Offered([], uuid.uuid4()))

    assert agent.claimer.asked.empty()


def test_broker_sends_ahead_twice_the_slots_and_no_more(agent: Agent) -> None:
    """What was sent ahead is out of its TTL's reach. 0 would be no limit at all."""
    agent.loop.consumer = SimpleNamespace(qos=SimpleNamespace(value=1))

    agent.loop._adapt_prefetch()

    assert agent.loop.consumer.qos.value == 2 * agent.capacity


def test_pool_is_given_no_more_than_it_has_slots(agent: Agent) -> None:
    story: list[str] = []
    agent.desk.ended_last_second = lambda: 20  # type: ignore[method-assign]
    four = [Offered(story, uuid.uuid4()) for _ in range(4)]
    offer(agent, *four)

    answer(agent, *((each.execution_id, 1) for each in four))

    assert story.count("acknowledged") == 4, "claimed ahead"
    assert story.count("started") == agent.capacity
    assert [each.execution_id for each in agent.desk.ready] == [e.execution_id for e in four[2:]]


def test_what_was_claimed_and_found_no_slot_is_taken_back_once(agent: Agent) -> None:
    agent.desk.ended_last_second = lambda: 20  # type: ignore[method-assign]
    three = [Offered([], uuid.uuid4()) for _ in range(3)]
    offer(agent, *three)
    answer(agent, *((each.execution_id, 1) for each in three))

    assert agent.desk.take_back(older_than_seconds=60) == []
    (late,) = agent.desk.take_back(older_than_seconds=0)

    assert late.pk == three[2].execution_id
    assert set(agent.desk.claimed) == {each.key for each in three[:2]}
    assert agent.desk.take_back(older_than_seconds=0) == []


@pytest.mark.parametrize(
    ("seconds_ago", "deadline_seconds", "begins"),
    [(4.0, 3600.0, True), (6.0, 3600.0, False), (2.0, 3.0, True), (2.0, 1.0, False)],
)
def test_what_was_claimed_long_before_the_loop_came_to_it_goes_back(
    agent: Agent,
    monkeypatch: pytest.MonkeyPatch,
    seconds_ago: float,
    deadline_seconds: float,
    begins: bool,
) -> None:
    """The loop waits for a connection while the broker is away, and limits count from the claim."""
    back: list[Any] = []
    monkeypatch.setattr(agent.returns, "give_back_soon", lambda late, reason: back.extend(late))
    story: list[str] = []
    one = Offered(story, uuid.uuid4())
    offer(agent, one)

    answer(agent, one.key, seconds_ago=seconds_ago, deadline_seconds=deadline_seconds)

    assert story == (["started", "acknowledged"] if begins else ["acknowledged"])
    assert [each.pk for each in back] == ([] if begins else [one.execution_id])
    assert list(agent.desk.claimed) == ([one.key] if begins else [])


def test_what_is_about_to_start_is_not_taken_back_at_the_same_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that drains may take back all that is ready, at any moment."""
    one = Offered([], uuid.uuid4())
    one.execution = SimpleNamespace(pk=one.execution_id)
    agent.desk.claimed[one.key] = one  # type: ignore[assignment]
    late: list[Any] = []

    def take_back() -> None:
        late.extend(agent.desk.take_back(older_than_seconds=0))

    class Ready(deque[Any]):
        """Lets the other thread in before something is taken from it."""

        def popleft(self) -> Any:
            if not late and threading.current_thread() is not draining:
                draining.start()
                draining.join(0.2)
            return super().popleft()

    draining = threading.Thread(target=take_back)
    agent.desk.ready = Ready([one])

    taken: Any = agent.desk._next_ready()
    assert taken is one
    draining.join(10)
    assert late == []


def test_what_the_pool_has_sent_to_nobody_when_the_loop_ends_goes_back(agent: Agent) -> None:
    """Of two attempts, one has been sent to a process by a turn of the loop, and the other waits
    for the next turn, which does not come."""
    hub = Hub()
    set_event_loop(hub)
    pool = agent.desk.pool = TaskPool(2, app=app, threads=False, initargs=(app, "w1"))
    pool.start()
    try:
        pool.register_with_event_loop(hub)
        until = time.monotonic() + 30
        first, second = [Offered([], uuid.uuid4()) for _ in range(2)]
        for offered in (first, second):
            agent.desk.claimed[offered.key] = offered  # type: ignore[assignment]
            offered.execution = SimpleNamespace(key=offered.key)
        results: list[Any] = []
        pool.apply_async(noop, callback=results.append, correlation_id=first.id)
        while not results and time.monotonic() < until:
            hub.call_later(0.1, bool)
            next(hub.create_loop())
        pool.apply_async(noop, callback=results.append, correlation_id=second.id)

        agent.desk.take_unsent()

        assert len(results) == 1
        assert [each.key for each in agent.desk.take_back(older_than_seconds=0)] == [second.key]
        assert list(agent.desk.claimed) == [first.key]
    finally:
        pool.stop()
        set_event_loop(None)
    assert len(results) == 1, "and its process has not run it"


def test_what_no_thread_of_the_pool_has_begun_waits_for_a_slot_again(agent: Agent) -> None:
    """The pool would drop it when it stops, and say nothing."""
    pool = ThreadPool(1, app=app)
    pool.start()
    begun, over = threading.Event(), threading.Event()
    first, second = [Offered([], uuid.uuid4()) for _ in range(2)]
    for offered in (first, second):
        agent.desk.claimed[offered.key] = offered  # type: ignore[assignment]
        offered.execution = SimpleNamespace(key=offered.key)
    results: list[Any] = []
    first.job = pool.apply_async(hold, (begun, over), callback=results.append)
    second.job = pool.apply_async(noop, callback=results.append)
    assert begun.wait(10)

    agent.desk.take_unsent()

    assert [each.key for each in agent.desk.take_back(older_than_seconds=0)] == [second.key]
    assert list(agent.desk.claimed) == [first.key]
    over.set()
    pool.stop()
    assert results == ["held"], "the second one has not run"


def hold(begun: threading.Event, over: threading.Event) -> str:
    begun.set()
    over.wait(30)
    return "held"


def test_what_is_cancelled_before_it_has_a_slot_never_starts(agent: Agent) -> None:
    story: list[str] = []
    one = Offered(story, uuid.uuid4())
    one.is_canceling = True
    offer(agent, one)

    answer(agent, (one.execution_id, 1))

    assert story == ["acknowledged"]
    end = agent.finisher.ends.get_nowait()
    assert end.reason == "cancelled_running"
    assert not agent.desk.claimed


def test_attempt_whose_key_is_refused_ends_without_a_slot(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    story: list[str] = []
    ended: list[Any] = []
    monkeypatch.setattr(agent.finisher, "put", ended.append)
    one = Offered(story, uuid.uuid4())
    offer(agent, one)
    refused = Contents({}, refusal="The key billing/stripe was revoked.")

    answer(agent, (one.execution_id, 1), contents=refused)

    assert story == ["acknowledged"]
    assert agent.desk.claimed == {}
    (end,) = ended
    assert end.reason is Reason.KEY_REFUSED
    assert end.result["message"] == "The key billing/stripe was revoked."


@pytest.mark.parametrize("why", ["cancelled", "refused", "not started"])
def test_attempt_that_ends_without_a_slot_is_no_request_of_celery_any_more(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    ready: list[Any] = []
    monkeypatch.setattr("workers.desk.state.task_ready", ready.append)
    one = Offered([], uuid.uuid4())
    one.is_canceling = why == "cancelled"
    monkeypatch.setattr(one, "start", lambda *_, **__: 1 / 0)
    offer(agent, one)

    answer(agent, one.key, contents=Contents({}, refusal="no key" if why == "refused" else ""))

    assert ready == [one]
    assert not agent.finisher.ends.empty()


def test_result_that_cannot_be_masked_is_not_recorded_and_frees_its_slot(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    for reason, recorded in (
        (Reason.SUCCEEDED, Reason.ACTION_FAILED),
        (Reason.TRY_AGAIN, Reason.TRY_AGAIN),
    ):
        one: Any = Offered([], uuid.uuid4())
        one.masker = SimpleNamespace(value=lambda _: int("hunter22"))
        agent.desk.claimed[one.key] = one
        agent.desk.ended(one, reason, {"token": "hunter22"})
        end = agent.finisher.ends.get_nowait()
        assert end.reason is recorded
        message = "The worker could not mask its result: ValueError."
        assert end.result == {"error": recorded.text, "message": message, "failed_by": "worker"}
    assert agent.desk.claimed == {}
    assert "hunter22" not in caplog.text


def test_attempt_that_cannot_be_started_ends_and_the_next_one_starts(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories: list[list[str]] = [[], []]
    broken, next_one = (Offered(story, uuid.uuid4()) for story in stories)
    monkeypatch.setattr(broken, "start", lambda *_, **__: int("hunter22"))
    offer(agent, broken, next_one)

    answer(agent, broken.key, next_one.key, contents=Contents({}, ("hunter22",)))

    end = agent.finisher.ends.get_nowait()
    assert (end.execution.key, end.reason) == (broken.key, Reason.PROCESS_LOST)
    assert end.result["message"].startswith("The worker could not start it: ValueError: invalid")
    assert end.result["message"].endswith("'***'"), "it is masked before it has begun"
    assert stories == [["acknowledged"], ["started", "acknowledged"]]
    assert list(agent.desk.claimed) == [next_one.key]


def test_time_at_which_an_action_wants_to_run_again_is_no_secret(agent: Agent) -> None:
    """A worker has computed it, and the database counts with it."""
    result = {RETRY_AFTER: 470_000.0, "message": "come at 470000.0"}
    for reason, asked in ((Reason.TRY_AGAIN, 470_000.0), (Reason.SUCCEEDED, "***")):
        one = Offered([], uuid.uuid4())
        one.masker = hiding.masker_of(["470000"])
        agent.desk.ended(one, reason, result)  # type: ignore[arg-type]
        end = agent.finisher.ends.get_nowait()
        assert end.result == {RETRY_AFTER: asked, "message": "come at ***.0"}


def test_what_the_pool_was_never_given_is_taken_back_when_it_is_down(agent: Agent) -> None:
    begun, unbegun = (Offered([], uuid.uuid4()) for _ in range(2))
    offer(agent, begun, unbegun)
    answer(agent, begun.key, unbegun.key)
    begun.job = object()

    assert [each.key for each in agent.desk.take_unbegun()] == [unbegun.key]
    assert list(agent.desk.claimed) == [begun.key]
    assert agent.desk.take_unbegun() == []


@pytest.mark.parametrize("ahead", [0, 20])
def test_end_of_an_attempt_has_the_loop_look_for_what_waits_for_its_slot(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Whether it is claimed already or not; and only for that, so that an idle worker's end is
    recorded sooner."""
    wakes: list[str] = []
    monkeypatch.setattr(agent.loop, "wake", lambda: wakes.append("woken"))
    agent.desk.ended_last_second = lambda: ahead  # type: ignore[method-assign]
    three = [Offered([], uuid.uuid4()) for _ in range(3)]
    offer(agent, *three)
    answer(agent, *(each.key for each in three[: 3 if ahead else 2]))
    assert len(agent.desk.ready or agent.desk.waiting) == 1
    wakes.clear()

    agent.desk.ended(three[0], Reason.SUCCEEDED, {})  # type: ignore[arg-type]
    assert wakes == ["woken"]

    agent.desk.claim_waiting()
    assert not agent.desk.ready
    assert not agent.desk.waiting
    agent.desk.ended(three[1], Reason.SUCCEEDED, {})  # type: ignore[arg-type]
    assert wakes == ["woken"], "nothing waits"
