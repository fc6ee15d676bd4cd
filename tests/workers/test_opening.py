"""Opening of keys beside the claim: what is claimed is asked for while the database is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from orchestrator.core import executions
from orchestrator.core.executions import Contents
from workers import database_threads
from workers.agent import Agent

KEYED, PLAIN = "keyed", "plain"


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the database does not answer; emptied by each question."""
    left = [3]

    def opened(granted: Any, *, unread: str = "") -> Any:
        if not unread and left[0]:
            left[0] -= 1
            raise OperationalError("away")
        refusal = {KEYED: unread}
        return {row.pk: Contents({}, refusal=refusal.get(row.pk, "")) for row in granted}

    monkeypatch.setattr(executions, "opened", opened)
    monkeypatch.setattr(database_threads, "PAUSE_SECONDS", 0.01)
    return left


GRANTED: Any = [SimpleNamespace(pk=KEYED), SimpleNamespace(pk=PLAIN)]


def test_keys_are_asked_for_until_the_database_answers(agent: Agent, away: list[int]) -> None:
    contents: Any = agent.claimer._opened(GRANTED)
    assert {each.refusal for each in contents.values()} == {""}
    assert away == [0]


def test_database_that_stays_away_refuses_what_has_a_key(
    agent: Agent, away: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    away[0] = 1_000
    monkeypatch.setattr(database_threads, "OPENING_SECONDS", 0.05)
    contents: Any = agent.claimer._opened(GRANTED)
    assert contents[KEYED].refusal == database_threads.UNREAD
    assert contents[PLAIN].refusal == ""


def test_any_other_fault_refuses_what_has_a_key_and_no_more(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(granted: Any, *, unread: str = "") -> Any:
        if not unread:
            raise ImportError("no cryptography here")
        return {row.pk: Contents({}, refusal=unread * (row.pk == KEYED)) for row in granted}

    monkeypatch.setattr(executions, "opened", broken)
    contents: Any = agent.claimer._opened(GRANTED)
    assert contents[KEYED].refusal == database_threads.FAILED
    assert contents[PLAIN].refusal == ""


def test_worker_that_stops_does_not_wait_for_keys(agent: Agent, away: list[int]) -> None:
    agent.is_stopping = True
    contents: Any = agent.claimer._opened(GRANTED)
    assert contents[KEYED].refusal == database_threads.UNREAD
    assert away == [2]
