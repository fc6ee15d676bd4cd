"""A client of the API that keeps a ledger of what it was promised, and some cancels."""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.facts import Accepted

MIX = {
    "chaos.once": 30,
    "chaos.again": 30,
    "chaos.shell_once": 9,
    "chaos.shell_again": 9,
    "chaos.fails": 6,
    "chaos.fails_again": 6,
    "chaos.defers": 3,
    "chaos.shell_defers": 3,
}
LONGEST_PAUSE_SECONDS = 0.3
SHORT_DEADLINE_SHARE = 0.1
CANCEL_SHARE = 0.08
PINNED_SHARE = 0.03
GHOST_SHARE = 0.06
GHOST_TTL_MS = 300
GIVE_UP_SECONDS = 60.0

MOST_OPEN = 240
"""More than these are not open at once, or a slow machine would never get through them: what waits
in vain until its deadline there would be no fault's doing."""
LOOK_SECONDS = 0.5

QUEUED_SHARE = 0.25
"""What names a queue, of all that names no worker."""

TEMPLATES = {"chain": 8, "wide": 22, "diamond": 5}
"""Task templates of the pack, and how many steps each has."""

TASK_CANCEL_SHARE = 0.05


class Load(threading.Thread):
    """Has so many executions accepted, spread over so many seconds, and goes on like that until it
    is enough."""

    def __init__(
        self,
        *,
        url: str,
        token: str,
        ledger: Path,
        trace: Path,
        number: int,
        seconds: float,
        seed: int,
        open_now: Callable[[], int | None],
        steps: int = 0,
        least_deadline_seconds: float | None = None,
    ) -> None:
        super().__init__(name="load", daemon=True)
        self.ledger, self.trace = ledger, trace
        self.number, self.seconds, self.steps = number, seconds, steps
        self.open_now = open_now
        """Returns how many executions are not over; None if that cannot be known now."""
        self._held_back_seconds = 0.0
        self.deadline_seconds = least_deadline_seconds
        """For all that would otherwise have the deadline of the settings."""
        self.accepted_steps = 0
        self.tasks: list[str] = []
        """Ids of the tasks that were accepted."""
        self.wrong_answers: list[str] = []
        """5xx other than 503, to whoever asked."""
        self.workers: list[int] = []
        """Ids of workers, for executions that name one."""
        self.queues: list[str] = []
        """Queues that some executions name."""
        self.ghosts: list[int] = []
        """Ids of workers that never come: what names one of them waits for its TTL."""
        self.cancel_share = CANCEL_SHARE
        self.accepted = 0
        self.unanswered = 0
        self.cancels_asked = 0
        """Also those that were answered with 503, and done all the same."""
        self.cancelled = 0
        self.cancelled_too_late = 0
        self.failure: Exception | None = None
        self.enough = threading.Event()
        """Set it when there is nothing left to be disturbed."""
        self._rng = random.Random(seed)
        self._cancels: list[tuple[float, str]] = []
        """(when, path)."""
        self._look_again_at = 0.0
        self._url, self._token = url, token
        self._client = self.http()

    def http(self) -> httpx.Client:
        """A client of the API."""
        return httpx.Client(
            base_url=f"{self._url}/api/v1",
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=15.0,
            limits=httpx.Limits(max_connections=2),
            event_hooks={"response": [self._look_at]},
        )

    def _look_at(self, answer: httpx.Response) -> None:
        if answer.status_code > 499 and answer.status_code != 503:
            answer.read()
            told = f"{answer.request.method} {answer.request.url.path}: {answer.status_code}"
            self.wrong_answers.append(f"{time.time():.3f} {told} {answer.text[:200]}")

    def run(self) -> None:
        try:
            with self._client:
                self._run()
        except Exception as error:  # noqa: BLE001 - told by whoever waits for this thread
            self.failure = error

    def _run(self) -> None:
        began = time.monotonic()
        while self.accepted < self.number or not self.enough.is_set():
            due = began + self.seconds * self.accepted / self.number + self._held_back_seconds
            self._cancel_until(due)
            self._wait_for_room()
            self._submit()
            if self.accepted_steps < self.steps * min(1.0, self.accepted / self.number):
                self._submit_task()
        self._cancel_until(time.monotonic() + 1)

    def _wait_for_room(self) -> None:
        """Wait while too much is open, but for no longer than it can be."""
        now = began = time.monotonic()
        if now < self._look_again_at:
            return
        while (self.open_now() or 0) > MOST_OPEN and now - began < GIVE_UP_SECONDS:
            self._cancel_until(now + LOOK_SECONDS)
            now = time.monotonic()
        self._held_back_seconds += now - began
        self._look_again_at = now + LOOK_SECONDS

    def _submit(self) -> None:
        new = self._new()
        sent_at = time.time()
        answer = self._post("/executions", new, repeat="idempotency_key" in new)
        if answer is None:
            self.unanswered += 1  # it may have been accepted: then it is in the database
            return
        assert answer.status_code in (200, 201), answer.text
        told = answer.json()
        self._write(
            Accepted(
                execution=told["id"],
                at=sent_at,
                deadline_at=datetime.fromisoformat(told["deadline_at"]).timestamp(),
                action=told["action_ref"],
                queue=new.get("queue", "default"),
            )
        )
        self.accepted += 1
        if self._rng.random() < self.cancel_share:
            at = time.monotonic() + self._rng.uniform(0, 0.6)
            heapq.heappush(self._cancels, (at, f"/executions/{told['id']}/cancel"))

    def _submit_task(self) -> None:
        [name] = self._rng.choices(list(TEMPLATES), k=1)
        self.accepted_steps += TEMPLATES[name]
        new = {"namespace": "chaos", "name": name, "version": "1.0.0"}
        answer = self._post("/tasks", new | {"context": {"trace": str(self.trace)}}, repeat=False)
        if answer is None:
            self.unanswered += 1
            return
        assert answer.status_code == 201, answer.text
        id = answer.json()["task_uuid"]
        self.tasks.append(id)
        if self._rng.random() < TASK_CANCEL_SHARE:
            at = time.monotonic() + self._rng.uniform(0, 1.5)
            heapq.heappush(self._cancels, (at, f"/tasks/{id}"))

    def _new(self) -> dict[str, Any]:
        rng = self._rng
        [action] = rng.choices(list(MIX), weights=list(MIX.values()))
        seconds = round(rng.uniform(0.005, LONGEST_PAUSE_SECONDS), 3)
        new: dict[str, Any] = {
            "action_ref": action,
            "parameters": {"trace": str(self.trace), "seconds": seconds},
            "priority": rng.choice([0, 0, 0, 5]),
        }
        if rng.random() < SHORT_DEADLINE_SHARE:
            new["deadline_seconds"] = round(rng.uniform(0.2, 3.0), 3)
        elif self.deadline_seconds is not None:
            new["deadline_seconds"] = self.deadline_seconds
        if rng.random() < 0.5:
            new["idempotency_key"] = f"key-{rng.getrandbits(64):x}"
        if self.workers and rng.random() < PINNED_SHARE:
            new["worker_id"] = rng.choice(self.workers)
        elif self.queues and rng.random() < QUEUED_SHARE:
            new["queue"] = rng.choice(self.queues)
        if self.ghosts and "queue" not in new and rng.random() < GHOST_SHARE:
            new |= {"worker_id": rng.choice(self.ghosts), "queue_ttl_ms": GHOST_TTL_MS}
        return new

    def _post(self, path: str, body: Any, *, repeat: bool) -> httpx.Response | None:
        return self._ask("POST", path, body, repeat=repeat)

    def _ask(self, method: str, path: str, body: Any, *, repeat: bool) -> httpx.Response | None:
        """The answer, or None if there was none. What may be repeated is, until there is one."""
        until = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                answer = self._client.request(method, path, json=body)
            except httpx.ConnectError:
                repeatable = True  # it never left
            except httpx.HTTPError:
                repeatable = repeat
            else:
                if answer.status_code < 500:
                    return answer
                repeatable = repeat or answer.status_code == 503
            if not repeatable:
                return None
            if time.monotonic() > until:
                raise TimeoutError(f"{method} {path}: no answer for {GIVE_UP_SECONDS:.0f} s")
            time.sleep(0.2)

    def _cancel_until(self, due: float) -> None:
        """Send the cancels whose time has come, and wait until this time."""
        while self._cancels and self._cancels[0][0] <= max(due, time.monotonic()):
            at, path = heapq.heappop(self._cancels)
            time.sleep(max(0.0, at - time.monotonic()))
            is_task = path.startswith("/tasks")
            self.cancels_asked += not is_task
            answer = self._ask("DELETE" if is_task else "POST", path, {}, repeat=True)
            assert answer is not None
            if answer.status_code in (200, 202):
                self.cancelled += 1
            else:
                assert answer.status_code == 409, answer.text
                self.cancelled_too_late += 1
        time.sleep(max(0.0, due - time.monotonic()))

    def _write(self, accepted: Accepted) -> None:
        with self.ledger.open("a") as file:
            file.write(json.dumps(vars(accepted)) + "\n")


def read_ledger(path: Path) -> list[Accepted]:
    if not path.exists():
        return []
    return [Accepted(**json.loads(line)) for line in path.read_text().splitlines()]
