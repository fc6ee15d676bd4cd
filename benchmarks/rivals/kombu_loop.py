"""A bare loop on RabbitMQ: consumes in batches, answers with one wait for confirms a batch, and
acknowledges all at once. It keeps no track of anything: the least that an answer can cost.

kombu's connection and py-amqp's channel, in one process.
"""

from __future__ import annotations

import os
from typing import Any

from kombu import Connection

from benchmarks.rivals import task_queue
from benchmarks.rivals.done import ready
from benchmarks.rivals.task_queue import submit as submit

BATCH = 250
QUIET_SECONDS = 0.002


def prepare() -> None:
    task_queue.declare()


def begin() -> None:
    task_queue.empty()


def is_finished(*, count: int) -> bool:
    return task_queue.answered() >= count


class Loop:
    def __init__(self, link: Connection) -> None:
        self.link = link
        channel: Any = link.channel()
        channel.confirm_select()
        channel.events["basic_ack"].add(self._confirmed)
        channel.basic_qos(0, 2 * BATCH, False)
        channel.basic_consume(task_queue.INPUT, callback=self._received)
        self.channel = channel
        self.batch: list[Any] = []
        self.sent = self.confirmed = 0

    def run(self) -> None:
        while True:
            self._gather()
            for message in self.batch:
                self.channel.basic_publish(
                    task_queue.answer_of(message.body), "", task_queue.OUTPUT, mandatory=True
                )
                self.sent += 1
            batch, self.batch = self.batch, []
            while self.confirmed < self.sent:
                self.link.drain_events()
            self.channel.basic_ack(batch[-1].delivery_tag, multiple=True)

    def _gather(self) -> None:
        while not self.batch:
            self.link.drain_events()
        while len(self.batch) < BATCH:
            try:
                self.link.drain_events(timeout=QUIET_SECONDS)
            except TimeoutError:
                return

    def _received(self, message: Any) -> None:
        self.batch.append(message)

    def _confirmed(self, tag: int, multiple: bool) -> None:
        self.confirmed = max(self.confirmed, tag)


if __name__ == "__main__":
    with Connection(os.environ["BROKER_URL"]) as link:
        loop = Loop(link)
        ready()
        loop.run()
