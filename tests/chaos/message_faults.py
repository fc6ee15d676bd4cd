"""What happens to messages, queues, and what leads to them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.chaos import garbage
from tests.chaos.breaking import Breaking, Broken, NotNow, put
from tests.scenarios.installation import Installation

COPIES = 3

SHARED = ("execution.requests", "execution.completed", "maintenance", "dlx")


class MessageFaults(Breaking):
    def delete_worker_queue(self) -> Broken:
        """With all messages in it, and under its consumer."""
        name, id = self._some_worker()
        queue = self._route(id)[0]
        with self.channel() as channel:
            channel.queue_delete(queue)
        return Broken(queue, frozenset({name}))

    def delete_binding(self) -> Broken:
        """The queue stays with its consumer, and nothing is routed to it any more."""
        name, id = self._some_worker()
        queue, exchange, key = self._route(id)
        with self.channel() as channel:
            channel.queue_unbind(queue, exchange, key)
        return Broken(f"of {queue}", frozenset({name}))

    def delete_exchange(self) -> Broken:
        """With all bindings: nothing reaches anybody."""
        exchange = f"{self.namespace}.executions"
        with self.channel() as channel:
            channel.exchange_delete(exchange)
        return Broken(exchange, self.everybody)

    def empty_virtual_host(self) -> Broken:
        """Every queue, with its messages, and every exchange."""
        ids = list(self.database.worker_names())
        self.muster.client.call("delete_everything", worker_ids=ids)
        return Broken(f"of {len(ids)} workers", self.everybody)

    def duplicate_dispatches(self) -> Broken:
        """Copies of messages for what waits, runs or is over, to the right and a wrong worker."""
        rows = self.database.select(
            "SELECT id, attempt, worker_id FROM orchestrator_execution WHERE attempt > 0 "
            "ORDER BY ended_at IS NOT NULL, created_at DESC LIMIT 12"
        )
        if not rows:
            raise NotNow
        queues = {id: self._route(id)[0] for id in {row["worker_id"] for row in rows}}
        with self.channel() as channel:
            for row in rows:
                execution = str(uuid.UUID(str(row["id"])))
                own = queues[row["worker_id"]]
                for queue in (*[own] * COPIES, self._rng.choice(list(queues.values()))):
                    for attempt in {row["attempt"], max(1, row["attempt"] - 1)}:
                        _dispatch(channel, queue, [(execution, attempt)])
            # and in one list what belongs to this worker and to others, at two attempts each
            both = [(str(uuid.UUID(str(row["id"]))), row["attempt"]) for row in rows]
            both += [(execution, max(1, attempt - 1)) for execution, attempt in both]
            for queue in queues.values():
                _dispatch(channel, queue, self._rng.sample(both, len(both)))
        return Broken(f"of {len(rows)} executions")

    def garbage_on_every_queue(self) -> Broken:
        names = queue_names(self.muster)
        with self.channel() as channel:
            for name in names:
                for _ in range(COPIES):
                    put(channel, name, garbage.make(self._rng))
        return Broken(f"on {len(names)} queues")

    def _some_worker(self) -> tuple[str, int]:
        """Name and id of a worker that has, or had, a process."""
        ids = {name: id for id, name in self.database.worker_names().items()}
        known = [name for name in self.keeper.workers if name in ids]
        if not known:
            raise NotNow
        name = self._rng.choice(known)
        return name, ids[name]

    def _route(self, worker_id: int) -> tuple[str, str, str]:
        """Queue, exchange and routing key of its dispatches."""
        [dispatches, _] = self.muster.client.call("queues_of_worker", id=worker_id)
        queue, exchange, key = dispatches
        return queue, exchange, key


def queue_names(muster: Installation) -> list[str]:
    """Every queue that the topology promises."""
    namespace = muster.settings.get("namespace", "muster")
    names = [f"{namespace}.{name}.queue" for name in SHARED]
    for worker in muster.client.call("all_workers"):
        names += [queue for queue, _, _ in muster.client.call("queues_of_worker", id=worker.id)]
    return names


def _dispatch(channel: Any, queue: str, attempts: list[tuple[str, int]]) -> None:
    execution, attempt = attempts[0]
    kwargs: dict[str, Any] = {"execution_id": execution, "attempt": attempt}
    if len(attempts) > 1:
        kwargs = {"attempts": attempts}
    headers = garbage.celery_headers("muster.run", f"{execution}.{attempt}")
    put(channel, queue, garbage.Garbage(json.dumps([[], kwargs, {}]).encode(), headers))
