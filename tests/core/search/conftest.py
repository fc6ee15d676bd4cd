"""A table of executions in which each key of the language has something to find."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from orchestrator.core.models import Execution
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.reasons import Reason
from orchestrator.core.search import Asked
from orchestrator.core.states import TERMINAL, ExecutionStatus
from tests.factories import NOW, make_action, make_execution, make_worker
from tests.principals import ROOT

SCHEMA = {
    "type": "object",
    "properties": {"pin": {"type": "integer", "secret": True}, "order": {}},
}

MESSAGES = (
    "no route to printer 7",
    "No Route to host",
    "could not open /dev/printer7 (50 % done, under_score)",
    "declined for 4: Überweisung",
    "postgres://ada:hunter22@db/shop refused",
)


@pytest.fixture
def asked() -> Asked:
    return Asked(ROOT, NOW)


def id_of(at: datetime, number: int) -> UUID:
    """An id made at this time; its end is the number."""
    return UUID(int=uuid7_floor(at).int | 7 << 76 | 2 << 62 | number)


def fill(count: int = 120, seed: int = 1) -> list[Execution]:
    """So many executions of the last four days, the newest last."""
    chance = random.Random(seed)
    ages = sorted(chance.choice([1, 60, 1500]) * chance.random() * 240 for _ in range(count))
    return [_one(chance, NOW - timedelta(seconds=age)) for age in reversed(ages)]


def _one(chance: random.Random, at: datetime) -> Execution:
    at = at.replace(microsecond=at.microsecond // 1000 * 1000)
    status = chance.choice(list(ExecutionStatus))
    action = make_action(chance.choice(["core.echo", "core.shell", "shop.charge"]))
    values: dict[str, Any] = {
        "pk": id_of(at, chance.getrandbits(48)),
        "created_at": at,
        "deadline_at": at + timedelta(hours=1 if at.second % 2 else 216),
        "worker": make_worker(chance.choice(["w1", "w2", "printer-7"])),
        "parameters": chance.choice(
            [{"order": 7}, {"order": "7"}, {"order": 7.5}, {"order": {"id": "a b"}}, {"pin": 1234}]
        ),
        "requested_by": chance.choice(["user:ada", "user:Ada", "service:deploy", ""]),
        "correlation_id": chance.choice([None, "batch-1", "batch-2"]),
    }
    if chance.random() < 0.4:
        values |= {"queue": chance.choice(["mail", "mail_2", "print"]), "lane": "input"}
    if status not in (ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING):
        values["attempt"] = chance.randint(1, 4)
    if status in TERMINAL:
        started = at + timedelta(seconds=chance.choice([0.25, 4, 300]))
        values["started_at"] = chance.choice([None, started])
        values["ended_at"] = started + timedelta(seconds=chance.choice([0.5, 5, 90]))
        values["reason"] = chance.choice(list(Reason)).value
        values["result"] = chance.choice([None, {"message": chance.choice(MESSAGES)}, {"x": 1}])
    return make_execution(status, action=action, **values)
