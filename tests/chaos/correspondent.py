"""A foreign client of gates: publishes with confirms, keeps a ledger, and records all answers."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import logging
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions

from tests import servers
from tests.chaos import evidence, gate_rules
from tests.chaos.accounting import OUTCOME_UNKNOWN
from tests.chaos.breaking import Broken, NotNow
from tests.chaos.facts import Event, Violation
from tests.chaos.gate_rules import Kind, Ledger, Letter, Sent, Ticket
from tests.chaos.lanes import BRIEFLY
from tests.chaos.storm import Beside

if TYPE_CHECKING:
    from tests.chaos.storm import Storm

logging.getLogger("pika").setLevel(logging.CRITICAL)

SHARES = {
    Kind.AGAIN: 60, Kind.ONCE: 10, Kind.FAILS: 6, Kind.DEFERS: 3,
    Kind.UNKNOWN: 6, Kind.GARBAGE: 4, Kind.OLD: 3,
}  # fmt: skip
CLASSIFIERS = {
    "Again": {"action": "chaos.again"},
    "Once": {"action": "chaos.once"},
    "Fails": {"action": "chaos.fails"},
    "Defers": {"action": "chaos.defers"},
    "Poison": {"action": "chaos.poison"},
}
POISON_EVERY = 100
"""One message of so many. Each needs a worker of its own, one after the other."""
TWICE_SHARE = 0.08
LONGEST_SECONDS = 0.15
POLL_SECONDS = 0.05
AWAY_SECONDS = (1.0, 3.0)
"""How long a deleted output queue is not there."""
DELETE_WITHIN_SECONDS = 15.0
GIVEN_BACK_SECONDS = 1.0
"""So long after a connection broke, what the broker had sent over it is in its queue again. Until
then the queue counts as empty, and would be deleted with it."""
PATIENCE_SECONDS = 240.0
"""From the last fault to the last answer, at most: the deadline of what was sent, and some."""

GONE = (pika.exceptions.AMQPError, OSError, AttributeError)
"""Of a connection that breaks; pika forgets its own transport while it does."""

TICKETS = """
    SELECT ticket.id, ticket.task_id, ticket.execution_id, ticket.refusal, ticket.told_at,
        ticket.moved_at, queue.name AS gate
    FROM queues_ticket AS ticket JOIN queues_workqueue AS queue ON queue.id = ticket.gate_id
    ORDER BY ticket.id
"""
UNTOLD = "SELECT id FROM queues_ticket WHERE told_at IS NULL"


@dataclass(frozen=True)
class Door:
    """A gate of the campaign: the queue as its file says it, and the gate's own values."""

    name: str
    queue: Mapping[str, Any]
    gate: Mapping[str, Any] = field(default_factory=dict)

    def of(self, queue_type: str) -> Door:
        """The same gate with queues of this type."""
        return replace(self, gate={**self.gate, "queue_type": queue_type})

    @property
    def limit(self) -> int:
        return int(self.queue["retry_limit"])

    @property
    def kind(self) -> str:
        return str(self.gate.get("queue_type", "classic"))

    @property
    def input(self) -> str:
        return f"{self.name}.in"

    @property
    def output(self) -> str:
        return f"{self.name}.out"

    @property
    def rejected(self) -> str:
        return f"{self.name}.rejected"

    @property
    def read(self) -> list[str]:
        """The queues that the gate reads."""
        return [self.input, *filter(None, [self.gate.get("retry_queue")])]

    @property
    def values(self) -> dict[str, Any]:
        return {
            "input_queue": self.input,
            "output_queue": self.output,
            "rejected_queue": self.rejected,
            "queue_type": "classic",
            "classifiers": CLASSIFIERS,
            **self.gate,
        }


PATIENT: Mapping[str, Any] = {"deadline_seconds": 180.0, **BRIEFLY}
LETTERS = Door(
    "letters",
    {"retry_limit": 2, "prefetch_buffer": 10, **PATIENT},
    # nobody else consumes it: a redelivery is no lost start
    {"count_redelivered": False},
)
PARCELS = Door(
    "parcels",
    {"retry_limit": 10, "prefetch_buffer": 5, **PATIENT},
    {
        "custody": "row",
        "retry_queue": "parcels.retry",
        "retry_by": "queue",
    },
)
DOORS = (LETTERS, PARCELS)


class Mailbox:
    """A connection to the broker that is made again whenever it breaks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._link: Any = None
        self._channel: Any = None

    @property
    def channel(self) -> Any:
        """An open channel with confirms. Raises one of `GONE`."""
        if self._link is None or not self._link.is_open:
            parameters = pika.URLParameters(self.url)
            parameters.heartbeat, parameters.blocked_connection_timeout = 10, 20
            self._link = pika.BlockingConnection(parameters)
            self._channel = None
        if self._channel is None or not self._channel.is_open:
            self._channel = self._link.channel()
            self._channel.confirm_delivery()
        return self._channel

    def close(self) -> None:
        with contextlib.suppress(*GONE):
            if self._link is not None:
                self._link.close()
        self._link = None


class Correspondent(Beside):
    """Sends so many messages over so many seconds, and goes on until there is nothing left to be
    disturbed; gets all answers, and says what is wrong with them."""

    def __init__(
        self,
        storm: Storm,
        *,
        messages: int,
        seconds: float,
        seed: int,
        doors: Sequence[Door] = DOORS,
    ) -> None:
        super().__init__(name="correspondent", daemon=True)
        self.messages, self.seconds, self.doors = messages, seconds, doors
        self.sent: dict[str, Sent] = {}
        self._storm, self._rng = storm, random.Random(seed)
        self._numbers = itertools.count()
        for door in doors:
            storm.muster.client.call("make_gate", name=door.name, values={}, gate=door.values)
        self.reader = Reader(storm.muster.broker_url, doors, seed=seed)
        storm.breaker.own["delete output queue"] = self.reader.delete_an_output_queue

    def run(self) -> None:
        mailbox = Mailbox(self._storm.muster.broker_url)
        try:
            self.reader.start()
            self._run(mailbox)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self.failure = error
        finally:
            mailbox.close()

    def _run(self, mailbox: Mailbox) -> None:
        self._wait_for_queues(mailbox)
        began, enough = time.monotonic(), self._storm.client.enough
        while len(self.sent) < self.messages or not enough.is_set():
            due = began + self.seconds * len(self.sent) / self.messages
            time.sleep(max(0.0, due - time.monotonic()))
            self._send(mailbox)
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._is_over() and time.monotonic() < until:
            time.sleep(0.5)

    # --- sending ---

    def _wait_for_queues(self, mailbox: Mailbox) -> None:
        """Until Muster has declared them."""

        def all_there() -> bool:
            try:
                for door in self.doors:
                    for name in (*door.read, door.output, door.rejected):
                        mailbox.channel.queue_declare(name, passive=True)
            except GONE:
                return False
            return True

        self._storm.muster.wait_for(all_there, "gates are not open", within_seconds=60)

    def _send(self, mailbox: Mailbox) -> None:
        number = next(self._numbers)
        door = self._rng.choice(self.doors)
        [kind] = self._rng.choices(list(SHARES), weights=list(SHARES.values()))
        if number % POISON_EVERY == POISON_EVERY // 4:
            kind = Kind.POISON
        sent = Sent(f"{kind}-{number}", door.name, kind)
        self.sent[sent.task_id] = sent
        body, headers = self._body(sent), self._headers(sent)
        for _ in range(2 if self._rng.random() < TWICE_SHARE else 1):
            self._publish(mailbox, door.input, body, headers, sent)

    def _publish(
        self, mailbox: Mailbox, name: str, body: bytes, headers: dict[str, Any], sent: Sent
    ) -> None:
        """Until the broker confirms it: the same bytes, as a client does that has heard nothing."""
        properties = pika.BasicProperties(delivery_mode=2, headers=headers, message_id=sent.task_id)
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                channel = mailbox.channel
                sent.tries += 1
                channel.basic_publish("", name, body, properties, mandatory=True)
            except GONE:
                time.sleep(0.3)
                continue
            sent.confirmed += 1
            return
        raise TimeoutError(f"{name} takes nothing for {PATIENCE_SECONDS:.0f} s")

    def _body(self, sent: Sent) -> bytes:
        if sent.kind is Kind.GARBAGE:
            return b"\xff no JSON " + sent.task_id.encode()
        seconds = round(self._rng.uniform(0.005, LONGEST_SECONDS), 3)
        data = json.dumps({"trace": str(self._storm.trace.path), "seconds": seconds}).encode()
        message = {
            "version": 3,
            "taskId": sent.task_id,
            "taskClassifier": sent.kind.value.capitalize(),
            "taskData": base64.b64encode(data).decode(),
            "correlationId": sent.task_id,
        }
        return json.dumps(message).encode()

    def _headers(self, sent: Sent) -> dict[str, Any]:
        return {"x-caf-worker-rejected": gate_rules.INVALID} if sent.kind is Kind.OLD else {}

    # --- the end ---

    def _is_over(self) -> bool:
        answered = self.reader.tasks_with("output") | self.reader.tasks_with("rejected")
        if self.sent.keys() - answered:
            return False
        with contextlib.suppress(*evidence.UNREADABLE):
            return not self._storm.database.select(UNTOLD)
        return False

    def violations(self) -> list[Violation]:
        self.reader.stop()
        return gate_rules.check(self.ledger())

    def ledger(self) -> Ledger:
        left: Mapping[str, int] = {}
        with contextlib.suppress(servers.ServerError):
            left = evidence.queues(self._storm.muster)
        return Ledger(
            gates={
                door.name: gate_rules.Gate(
                    door.limit, door.gate.get("count_redelivered", True), door.read
                )
                for door in self.doors
            },
            sent=list(self.sent.values()),
            answers=self.reader.letters["output"],
            copies=self.reader.letters["rejected"],
            tickets=list(self._tickets()),
            left=left,
            deletions=self.reader.deletions,
        )

    def _tickets(self) -> Iterator[Ticket]:
        database = self._storm.database
        events = database.events()
        rows = {row.execution: row for row in database.rows(events)}
        lost = Counter(event.execution for event in events if was_lost(event))
        lines = self._storm.trace.read()
        starts = Counter(line.execution for line in lines if line.event == "start")
        for each in database.select(TICKETS):
            execution = None if each["execution_id"] is None else str(each["execution_id"])
            row = rows.get(execution or "")
            yield Ticket(
                id=each["id"],
                task_id=each["task_id"],
                gate=each["gate"],
                execution=execution,
                refusal=(each["refusal"] or {}).get("rejected", ""),
                is_told=each["told_at"] is not None,
                is_moved=each["moved_at"] is not None,
                status=row.status if row else "",
                reason=row.reason if row else "",
                result=row.result if row else None,
                lost=lost[execution or ""],
                starts=starts[execution or ""],
            )

    def told(self) -> str:
        """A few words about the run."""
        kinds = Counter(str(sent.kind) for sent in self.sent.values())
        answers = self.reader.letters["output"]
        tasks = len({letter.task_id for letter in answers})
        published = sum(sent.confirmed for sent in self.sent.values())
        of_task = Counter(letter.task_id for letter in answers)
        again = sum(
            number > self.sent[task_id].tries
            for task_id, number in of_task.items()
            if task_id in self.sent
        )
        return (
            f"{len(self.sent)} messages {dict(kinds)}, {published} confirmed publishes, "
            f"{len(answers)} answers of {tasks} tasks, "
            f"{len(self.reader.letters['rejected'])} rejected copies, "
            f"{again} of them answered more often than published"
        )


def was_lost(event: Event) -> bool:
    """Whether it ended an attempt that had begun, and of which nobody knows how it ended."""
    return event.from_status in ("running", "canceling") and event.reason in OUTCOME_UNKNOWN


class Reader(threading.Thread):
    """Takes all messages of output and rejected queues, and writes down each before it lets the
    broker forget it."""

    def __init__(self, url: str, doors: Sequence[Door], *, seed: int) -> None:
        super().__init__(name="reader", daemon=True)
        self.doors = doors
        self.letters: dict[str, list[Letter]] = {"output": [], "rejected": []}
        self._mailbox = Mailbox(url)
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._orders: queue.Queue[tuple[Door, float, queue.Queue[bool]]] = queue.Queue()
        self.deletions: Counter[str] = Counter()
        """Of output queues, by door."""
        self._away: dict[str, float] = {}
        """Deleted queues, and when they are declared again."""
        self._broke_at = float("-inf")

    def tasks_with(self, box: str) -> set[str]:
        return {letter.task_id for letter in self.letters[box]}

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._look()
            except GONE:
                self._broke_at = time.monotonic()
                self._over.wait(0.3)
            self._over.wait(POLL_SECONDS)
        self._mailbox.close()

    def stop(self) -> None:
        """After all that is there has been read."""
        time.sleep(1.0)
        self._over.set()
        self.join()

    def _look(self) -> None:
        self._declare_again()
        for door in self.doors:
            for box, name in (("output", door.output), ("rejected", door.rejected)):
                if name not in self._away:
                    self._take_all(box, name, door)
        with contextlib.suppress(queue.Empty):
            door, seconds, answer = self._orders.get_nowait()
            answer.put(self._remove(door, seconds))

    def _take_all(self, box: str, name: str, door: Door) -> None:
        while True:
            channel = self._mailbox.channel
            method, properties, body = channel.basic_get(name)
            if method is None:
                return
            self.letters[box].append(letter_of(box, door, properties, body))
            channel.basic_ack(method.delivery_tag)

    # --- deleting ---

    def delete_an_output_queue(self) -> Broken:
        """An empty one: the client has what was in it. Raises NotNow."""
        door = self._rng.choice([door for door in self.doors if door.kind == "classic"])
        seconds = self._rng.uniform(*AWAY_SECONDS)
        answer: queue.Queue[bool] = queue.Queue()
        self._orders.put((door, seconds, answer))
        try:
            is_deleted = answer.get(timeout=DELETE_WITHIN_SECONDS)
        except queue.Empty:
            raise NotNow from None
        if not is_deleted:
            raise NotNow
        return Broken(f"{door.output} for {seconds:.1f} s", seconds=seconds)

    def _remove(self, door: Door, seconds: float) -> bool:
        until = time.monotonic() + DELETE_WITHIN_SECONDS / 2
        while time.monotonic() < until:
            self._over.wait(max(0.0, self._broke_at + GIVEN_BACK_SECONDS - time.monotonic()))
            try:
                self._take_all("output", door.output, door)
                self._mailbox.channel.queue_delete(door.output, if_empty=True)
            except pika.exceptions.ChannelClosedByBroker:  # an answer came in between
                self._over.wait(0.05)
                continue
            except GONE:
                self._broke_at = time.monotonic()
                self.deletions[door.name] += 1  # it may be deleted, and nobody heard
                continue
            self.deletions[door.name] += 1
            self._away[door.output] = time.monotonic() + seconds
            return True
        return False

    def _declare_again(self) -> None:
        for door in self.doors:
            if self._away.get(door.output, float("inf")) <= time.monotonic():
                arguments = {"x-queue-type": door.kind}
                self._mailbox.channel.queue_declare(door.output, durable=True, arguments=arguments)
                del self._away[door.output]


def letter_of(box: str, door: Door, properties: Any, body: bytes) -> Letter:
    headers = properties.headers or {}
    execution = headers.get("x-muster-execution-id", "")
    if box == "rejected":
        rejected = headers.get("x-caf-worker-rejected", "")
        return Letter(properties.message_id, door.name, rejected=rejected, execution=execution)
    answer = json.loads(body)
    return Letter(
        answer["taskId"],
        door.name,
        status=answer["taskStatus"],
        message_id=properties.message_id or "",
        execution=execution,
        data=json.loads(base64.b64decode(answer["taskData"])),
    )
