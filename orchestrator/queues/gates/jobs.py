"""The jobs of task messages: whether they still want their tasks.

A message may name a URL that answers with the status of its job, as CAF's job service does. It is
asked beside the path of messages; its task waits meanwhile, but never for longer than the answer
may take: no answer counts as `Active`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q

from orchestrator.core import executions, messages, relay
from orchestrator.core.executions import AlreadyOver, UnknownExecution
from orchestrator.core.models import Execution
from orchestrator.core.models.execution_sets import BACKLOG
from orchestrator.queues.gates.replies import INACTIVE, PAUSED
from orchestrator.queues.models import Gate, Ticket

log = structlog.get_logger(__name__)

ACTOR = "gate"
UNKNOWN, ACTIVE = "unknown", "active"
OVER_STATUSES = frozenset({"cancelled", "completed", "failed"})
ANSWER_SECONDS = 5.0
ASKED_AT_ONCE = 16
MOST_BYTES = 65_536
WAITS_FOR = timedelta(seconds=ANSWER_SECONDS + 3)
"""Whoever asks dies: the task runs after this time all the same."""
DEFAULT_AGE_SECONDS = 120.0
"""For how long an answer is good that says nothing of it, as in CAF."""
MOST_AGE_SECONDS = 86_400.0


@dataclass(frozen=True)
class Answer:
    """The answer of a URL about a job."""

    job_status: str
    """ACTIVE, PAUSED or INACTIVE."""
    age_seconds: float = DEFAULT_AGE_SECONDS
    """For how long it is good."""


@dataclass(frozen=True)
class Response:
    """An HTTP response, as far as it was read; `status` is 0 if there was none."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


Ask = Callable[[str], Response]


def answer_of(response: Response) -> Answer:
    """Read a response: a status as JSON text, or an object with `status`. A job that is not there
    is over; whatever else is no answer counts as active, as in CAF."""
    age_seconds = _max_age(response.headers)
    if response.status == 404:
        return Answer(INACTIVE, age_seconds)
    if response.status != 200:
        return Answer(ACTIVE, age_seconds)
    try:
        said: Any = json.loads(response.text)
    except (ValueError, RecursionError):
        said = response.text.strip()
    if isinstance(said, dict):
        said = said.get("status")
    word = str(said).casefold()
    if word == PAUSED:
        return Answer(PAUSED, age_seconds)
    return Answer(INACTIVE if word in OVER_STATUSES else ACTIVE, age_seconds)


def _max_age(headers: Mapping[str, str]) -> float:
    """The `max-age` of a response's `Cache-Control`, in seconds."""
    control = {name.casefold(): value for name, value in headers.items()}.get("cache-control", "")
    for part in control.split(","):
        name, _, value = part.strip().partition("=")
        if name.casefold() == "max-age" and value.strip().isdecimal():
            return min(float(value), MOST_AGE_SECONDS)
    return DEFAULT_AGE_SECONDS


class Checker:
    """Asks about jobs, each once as long as its answer is good."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.answers: dict[str, tuple[datetime, Answer]] = {}

    def look(self, gates: Mapping[int, Gate], *, now: datetime, limit: int = 100) -> int:
        """Ask about the jobs of tickets that are due, and act on each answer as it comes; returns
        how many tickets there were."""
        waiting: dict[str, list[Ticket]] = defaultdict(list)
        for ticket in _claim(list(gates), now=now, limit=limit):
            waiting[ticket.envelope["tracking"]["statusCheckUrl"]].append(ticket)
        self.answers = {url: known for url, known in self.answers.items() if known[0] > now}
        for url, answer in self._answers(list(waiting), now):
            for ticket in waiting[url]:
                act_on(answer, ticket=ticket, gate=gates[ticket.gate_id], now=now)
        return sum(map(len, waiting.values()))

    def _answers(self, urls: Sequence[str], now: datetime) -> Iterator[tuple[str, Answer]]:
        """The answers that are known of these jobs, then those of the others in the order in which
        they come: a service that hangs keeps nobody else waiting."""
        unknown = [url for url in urls if url not in self.answers]
        yield from ((url, self.answers[url][1]) for url in urls if url in self.answers)
        if not unknown:
            return
        with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="muster-gate-job") as pool:
            asked = {pool.submit(self.ask, url): url for url in unknown}
            for response in as_completed(asked):
                url = asked[response]
                yield url, self._learn(url, response.result(), now)

    def _learn(self, url: str, response: Response, now: datetime) -> Answer:
        answer = answer_of(response)
        if response.status not in (200, 404):
            log.warning("job status not known, counts as active", status=response.status)
        self.answers[url] = now + timedelta(seconds=answer.age_seconds), answer
        return answer


def _claim(gate_ids: Sequence[int], *, now: datetime, limit: int) -> list[Ticket]:
    """Take tickets whose jobs are to be asked about now, so that no other keeper asks too."""
    is_due = Q(status_checked_at__isnull=True) | Q(next_tell_at__lte=now)
    with transaction.atomic():
        found = Ticket.objects.untold().filter(
            is_due, gate__in=gate_ids, job_status__in=(UNKNOWN, PAUSED)
        )
        locked = found.order_by("pk").select_for_update(skip_locked=True, of=("self",), no_key=True)
        tickets = list(locked[:limit])
        Ticket.objects.filter(pk__in=[ticket.pk for ticket in tickets]).update(
            status_checked_at=now, next_tell_at=now + WAITS_FOR
        )
    return tickets


def hold_back(ids: Iterable[Any], *, now: datetime) -> None:
    """Let these new executions wait for an answer, in the transaction that writes them."""
    if held := list(ids):
        Execution.objects.filter(pk__in=held).update(next_retry_at=now + WAITS_FOR)


def act_on(answer: Answer, *, ticket: Ticket, gate: Gate, now: datetime) -> None:
    """Let the task of a ticket go on, wait, move to the paused queue, or end."""
    if answer.job_status == ACTIVE:
        _release(ticket, now)
    elif answer.job_status == PAUSED and not gate.paused_queue:
        _keep_waiting(ticket, answer, now)
    else:
        why = "its job is paused" if answer.job_status == PAUSED else "its job is over"
        _cancel(ticket, answer, why, now)


def _release(ticket: Ticket, now: datetime) -> None:
    assert ticket.execution_id is not None
    with transaction.atomic():
        _note(ticket, job_status=ACTIVE, next_tell_at=None)
        waiting = Execution.objects.open().filter(pk=ticket.execution_id, status__in=BACKLOG)
        if waiting.update(next_retry_at=now, wait_reason=""):
            hint = messages.requested([ticket.execution_id])
            transaction.on_commit(partial(relay.send_soon, hint))


def _keep_waiting(ticket: Ticket, answer: Answer, now: datetime) -> None:
    """Ask again after the interval that the message asks for, or while the answer is good."""
    assert ticket.execution_id is not None
    asked = ticket.envelope["tracking"].get("statusCheckIntervalMillis")
    pause = timedelta(seconds=max(1.0, answer.age_seconds if asked is None else asked / 1000))
    with transaction.atomic():
        _note(ticket, job_status=PAUSED, next_tell_at=now + pause)
        waiting = Execution.objects.open().filter(pk=ticket.execution_id, status__in=BACKLOG)
        waiting.update(next_retry_at=now + pause + WAITS_FOR, wait_reason="")


def _cancel(ticket: Ticket, answer: Answer, why: str, now: datetime) -> None:
    assert ticket.execution_id is not None
    try:
        with transaction.atomic():
            _note(ticket, job_status=answer.job_status, next_tell_at=None)
            executions.cancel(execution_id=ticket.execution_id, actor=ACTOR, reason=why, now=now)
    except (AlreadyOver, UnknownExecution):
        return  # it ended meanwhile, and is answered as it ended


def _note(ticket: Ticket, **values: Any) -> None:
    Ticket.objects.untold().filter(pk=ticket.pk).update(**values)
