"""The two threads of a worker that write to the database, so that its event loop never waits.

Each takes everything that has gathered since its last statement: the load decides the size of a
batch. Nothing waits when there is little to do; under load the finisher pauses between two
statements, because one for three ends costs nearly as much as one for thirty.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from orchestrator.access import execution_tokens
from orchestrator.core import clock, database, executions, outages
from orchestrator.core.executions import Contents, Ended
from orchestrator.core.masking import Masker
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey
from workers import hiding
from workers.host import Answer, Host, Offered

T = TypeVar("T")

log = outages.get_logger(__name__)

PAUSE_SECONDS = 1.0

LEAST_GAP_SECONDS = 0.025
"""The least time between two statements that record ends. No slot stays idle meanwhile: the next
attempts are claimed early."""

LOOK_AGAIN_SECONDS = 0.002
"""Meanwhile it is looked so often whether the worker has anything else to do. If not, the ends are
recorded at once: what is next may wait for these very ends."""

OPENING_SECONDS = 10.0
"""The longest time for which a database that is away is asked for keys."""

UNSTORABLE = "The result could not be stored"
FAILED = "Its keys could not be opened, or its token not stored: its worker's log has the details."

IDLE_SECONDS = 10.0
"""A connection that was not used for this long is checked before it is used again."""

HELD_PAUSE_SECONDS = 0.5
"""An end whose row another transaction holds is tried again after this time."""

BATCH_CHARACTERS = 16 << 20
"""The most characters of results in one statement. PostgreSQL takes 256 MiB in one array, and a
character has up to four bytes."""

OF_AN_ITEM = 8
"""About the characters of an item that is no text."""

SAME_FOR_ALL = frozenset({"0A", "42"})
"""Classes of `sqlstate` that no end is to blame for: a migration, or a missing privilege."""

TOOK_LONG = frozenset({database.QUERY_CANCELED, database.IDLE_IN_TRANSACTION})


class Claimer(threading.Thread):
    """Claims attempts for the agent, and wakes it when there is an answer."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-claimer", daemon=True)
        self.agent = agent
        self.asked: queue.Queue[list[Offered]] = queue.Queue()
        self.answers: deque[Answer] = deque()
        self._unbegun: set[AttemptKey] = set()
        """Claimed, and known not to have begun: the database was away when their keys were to be
        opened. Or asked for by a statement that failed: it may have been committed all the same."""

    def ask(self, batch: list[Offered]) -> None:
        self.asked.put(batch)

    def take_answers(self) -> Iterator[Answer]:
        """The answers since the last call. May be called from any thread."""
        # both the loop and the thread that drains may take them
        with contextlib.suppress(IndexError):
            while True:
                yield self.answers.popleft()

    def run(self) -> None:
        while True:
            asked = _gather(self.asked)
            self._claim([attempt for batch in asked for attempt in batch])
            for _ in asked:
                self.asked.task_done()

    def _claim(self, batch: list[Offered]) -> None:
        if self.agent.is_stopping:
            self.answers.append(Answer(batch, None))
            return
        try:
            answer = self._ask_database(batch)
        except Exception:  # of any kind: without this thread the worker would claim nothing more
            log.exception("cannot claim, trying again")
            # what another message has brought too may be running here
            self._unbegun |= self.agent.desk.in_hand.only_in([each.key for each in batch])
            connections.close_all()
            time.sleep(PAUSE_SECONDS)
            answer = Answer(batch, None)
        self.answers.append(answer)
        self.agent.loop.wake()

    def _ask_database(self, batch: list[Offered]) -> Answer:
        wanted = {attempt.key for attempt in batch}
        asked_at, now = time.monotonic(), clock.now()
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        self._disown_unbegun(life, now)
        granted = executions.claim(wanted, **life, now=now, actor=self.agent.name)
        contents, maskers = _with_maskers(self._opened(granted))
        opened = [execution for execution in granted if execution.pk in contents]
        self._unbegun |= {each.key for each in granted if each.pk not in contents}
        if len(granted) == len(wanted):
            return Answer(batch, opened, (), contents, maskers, asked_at)
        refused = wanted - {execution.key for execution in granted}
        try:
            held = executions.still_offered(refused, **life, now=now)
        except DatabaseError:
            # the granted ones must start; the others are asked for again, and get an answer then
            log.exception("could not ask why a claim was refused")
            connections.close_all()
            held = refused
        return Answer(batch, opened, held, contents, maskers, asked_at)

    def _disown_unbegun(self, life: Mapping[str, int], now: datetime) -> None:
        """Give back what was claimed and has not begun. The audit would do so, too, two heartbeats
        later."""
        if not self._unbegun:
            return
        returned = executions.disown(self._unbegun, **life, now=now, actor=self.agent.name)
        self._unbegun.clear()
        if returned:
            log.warning("claimed and not begun: given back", n=returned)

    def _opened(self, granted: list[Execution]) -> dict[UUID, Contents]:
        """Open the keys of claimed executions, and make their tokens. These are ours by now, so the
        database is asked again while it is away. If it stays away, those that need it are not in
        the answer."""
        until = time.monotonic() + OPENING_SECONDS
        while True:
            try:
                return _with_tokens(granted, executions.opened(granted))
            except DatabaseError as error:
                log.exception("cannot open keys, trying again")
                connections.close_all()
                is_away = database.is_outage(error)
            except Exception:  # whatever is wrong with keys, the others are claimed and must start
                log.exception("cannot open keys")
                return _refused(granted, FAILED)
            if self.agent.is_stopping or time.monotonic() > until:
                break
            time.sleep(PAUSE_SECONDS)
        contents = _refused(granted, FAILED)
        if not (is_away or self.agent.is_stopping):
            return contents
        return {id: each for id, each in contents.items() if not each.refusal}

    def flush(self, timeout_seconds: float) -> None:
        """Wait for the answers to all questions."""
        _wait_until_done(self.asked, timeout_seconds)


def _with_tokens(granted: list[Execution], contents: dict[UUID, Contents]) -> dict[UUID, Contents]:
    """Add the tokens of those whose actions want one; asks nobody if none does."""
    wanting = [each for each in granted if execution_tokens.is_wanted(each)]
    wanting = [each for each in wanting if not contents[each.pk].refusal]
    if not wanting:
        return contents
    tokens = execution_tokens.issue(wanting)
    return contents | {
        id: replace(contents[id], token=token, secrets=(*contents[id].secrets, token))
        for id, token in tokens.items()
    }


def _refused(granted: list[Execution], why: str) -> dict[UUID, Contents]:
    """Refuse those that have a key, want a token, or have what cannot be read; the others can
    begin."""
    return {each.pk: _without_keys(each, why) for each in granted}


def _without_keys(execution: Execution, why: str) -> Contents:
    refusal = Contents({}, refusal=why)
    try:
        if execution_tokens.is_wanted(execution):
            return refusal
        return executions.opened([execution], unread=why)[execution.pk]
    except Exception:
        log.exception("cannot look for keys", execution_id=str(execution.pk))
        return refusal


def _with_maskers(
    contents: dict[UUID, Contents],
) -> tuple[dict[UUID, Contents], dict[UUID, Masker]]:
    """Add what masks the secrets of each, made here and not on the consumer's thread; refuses those
    whose secrets cannot be masked."""
    maskers = dict.fromkeys(contents, hiding.NOTHING)
    for id, each in list(contents.items()):
        try:
            maskers[id] = hiding.masker_of(each.secrets)
        except Exception as error:  # noqa: BLE001 - its text, or traceback, might quote a secret
            kind = type(error).__name__
            log.error("cannot mask secrets", execution_id=str(id), error=kind)
            size = sum(map(len, each.secrets))
            why = f"Its secrets, {size:,} characters, could not be masked: {kind}."
            contents[id] = Contents({}, refusal=why)
    return contents, maskers


class Finisher(threading.Thread):
    """Takes ends as they come and records all that have gathered at once.

    While the database cannot be written it keeps them, and tries until it can: a known end must not
    be lost as long as this process lives.
    """

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-finisher", daemon=True)
        self.agent = agent
        self.ends: queue.Queue[Ended] = queue.Queue()
        self.unrecorded: dict[AttemptKey, Reason] = {}
        """The ends of attempts that are not in the database yet. Read without a lock by a worker
        that gives up."""
        self._recorded_at = 0.0

    def put(self, end: Ended) -> None:
        self.unrecorded[end.execution.key] = end.reason
        self.ends.put(end)

    def run(self) -> None:
        while True:
            for batch in _parts(_gather(self.ends, not_before=self._next_at)):
                try:
                    self._record(batch)
                except Exception:  # without this thread no end would be recorded any more
                    log.exception("ends left to the sweep", is_final=True, n=len(batch))
                self._recorded_at = time.monotonic()

    def _next_at(self) -> float:
        """The time at which the next statement is due, by the monotonic clock."""
        return 0.0 if self.agent.desk.has_nothing() else self._recorded_at + LEAST_GAP_SECONDS

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every end is recorded; False when time ran out first."""
        return _wait_until_done(self.ends, timeout_seconds)

    def _record(self, batch: list[Ended], *, without_result: bool = False) -> None:
        while True:
            try:
                self._record_once(batch)
            except Exception as error:  # of any kind: these ends, and all others, must be recorded
                log.exception("cannot record ends, trying again", n=len(batch))
                connections.close_all()
                if database.sqlstate(error) in TOOK_LONG and len(batch) == 1:
                    self._record_later(batch)  # the others need not wait for it
                    return
                if _may_pass(error):
                    time.sleep(PAUSE_SECONDS)
                    continue
                self._record_otherwise(batch, error, without_result=without_result)
            return

    def _record_otherwise(
        self, batch: list[Ended], error: Exception, *, without_result: bool
    ) -> None:
        """Record ends that cannot be recorded as they are: by halves, and the culprit without its
        result. If that fails as well, it is left to the sweep."""
        if half := len(batch) // 2:
            self._record(batch[:half])
            self._record(batch[half:])
        elif not without_result:
            self._record([_unstorable(batch[0], error)], without_result=True)
        else:
            # it stays in hand: the audit would have the action run once more
            log.error("end not recorded", execution_id=str(batch[0].execution.pk))
            self.ends.task_done()

    def _record_once(self, batch: list[Ended]) -> None:
        if time.monotonic() - self._recorded_at > IDLE_SECONDS:
            close_old_connections()
        self.agent.live_output.conclude([end.execution.key for end in batch])
        counted = executions.finish(batch, now=clock.now(), actor=self.agent.name)
        refused = {end.execution.key for end in batch} - counted
        held: Collection[AttemptKey] = ()
        if refused:
            held = executions.still_started(
                refused, worker_id=self.agent.worker_id, incarnation=self.agent.incarnation
            )
            refused -= executions.recorded(refused, worker=self.agent.name)
        if held:
            self._record_later([end for end in batch if end.execution.key in held])
        settled = [end for end in batch if end.execution.key not in held]
        for end in settled:
            if end.execution.key in refused:
                log.warning(
                    "late result refused: the attempt was given up",
                    execution_id=str(end.execution.pk),
                )
            self.unrecorded.pop(end.execution.key, None)
            self.ends.task_done()
        self.agent.desk.in_hand.let_go(end.execution.key for end in settled)

    def _record_later(self, held: list[Ended]) -> None:
        """Record ends that cannot be recorded now after a pause, with all that have come by
        then: another transaction holds their rows."""

        def put_back() -> None:
            for end in held:
                self.ends.put(end)
                self.ends.task_done()  # it was not done before

        log.warning("ends wait: their rows are held, or the database is slow", n=len(held))
        timer = threading.Timer(HELD_PAUSE_SECONDS, put_back)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # too many threads: the other ends wait, too
            time.sleep(HELD_PAUSE_SECONDS)
            put_back()


def _gather(source: queue.Queue[T], *, not_before: Callable[[], float] = lambda: 0.0) -> list[T]:
    """Wait for one item, and until `not_before`, which may change meanwhile; then take all that are
    there, up to a batch."""
    batch = [source.get()]
    while (wait_seconds := not_before() - time.monotonic()) > 0:
        time.sleep(min(wait_seconds, LOOK_AGAIN_SECONDS))
    while len(batch) < settings.MUSTER.batch_size:
        try:
            batch.append(source.get_nowait())
        except queue.Empty:
            break
    return batch


def _wait_until_done(source: queue.Queue[Any], timeout_seconds: float) -> bool:
    """Join the queue with a time limit."""
    until = time.monotonic() + timeout_seconds
    while source.unfinished_tasks and time.monotonic() < until:
        time.sleep(0.005)
    return not source.unfinished_tasks


def _parts(batch: list[Ended]) -> Iterator[list[Ended]]:
    """Divide ends so that the results of each part go into one statement."""
    part: list[Ended] = []
    total = 0
    for end in batch:
        characters = _characters(end.result)
        if part and total + characters > BATCH_CHARACTERS:
            yield part
            part, total = [], 0
        part.append(end)
        total += characters
    yield part


def _characters(value: Any) -> int:
    """About the characters of a JSON value; counts no further than a statement's."""
    total, waiting = 0, [value]
    while waiting and total <= BATCH_CHARACTERS:
        each = waiting.pop()
        if isinstance(each, str):
            total += len(each)
        elif isinstance(each, Mapping | list | tuple):
            total += OF_AN_ITEM * len(each)
            waiting += each
            waiting += each.values() if isinstance(each, Mapping) else ()
    return total


def _may_pass(error: Exception) -> bool:
    """Return True if the same ends are to be tried again, as none of them is to blame."""
    state = database.sqlstate(error)
    if state in TOOK_LONG:
        return False  # parts take less
    return database.is_outage(error) or state[:2] in SAME_FOR_ALL


def _unstorable(end: Ended, error: Exception) -> Ended:
    """Replace the result of an end, as the database cannot store it."""
    result = {
        "error": UNSTORABLE,
        "message": str(error).replace("\x00", ""),
        "failed_by": "worker",
    }
    return Ended(end.execution, Reason.ACTION_FAILED, result)
