"""Opening of keys and making of tokens beside the claim: what is claimed is asked for while the
database is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, ProgrammingError

from orchestrator.access import execution_tokens
from orchestrator.access.models import ExecutionToken
from orchestrator.core import executions
from orchestrator.core.executions import Contents
from orchestrator.core.masking import Masker
from orchestrator.core.models import Execution
from tests.factories import make_action, make_execution
from workers import database_threads, hiding
from workers.agent import Agent

KEYED, PLAIN = "keyed", "plain"


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """How often the database does not answer, which each question lessens; and its error."""
    left: list[Any] = [3, OperationalError("away")]

    def opened(granted: Any, *, unread: str = "") -> Any:
        if not unread and left[0]:
            left[0] -= 1
            raise left[1]
        refusal = {KEYED: unread}
        return {row.pk: Contents({}, refusal=refusal.get(row.pk, "")) for row in granted}

    monkeypatch.setattr(executions, "opened", opened)
    monkeypatch.setattr(database_threads, "PAUSE_SECONDS", 0.01)
    return left


WANTS_NONE = SimpleNamespace(runtime_options={})
GRANTED: Any = [SimpleNamespace(pk=pk, action=WANTS_NONE) for pk in (KEYED, PLAIN)]


def test_keys_are_asked_for_until_the_database_answers(agent: Agent, away: list[Any]) -> None:
    contents: Any = agent.claimer._opened(GRANTED)
    assert {each.refusal for each in contents.values()} == {""}
    assert away[0] == 0


def test_what_has_a_key_is_not_opened_if_the_database_stays_away(
    agent: Agent, away: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    away[0] = 1_000
    monkeypatch.setattr(database_threads, "OPENING_SECONDS", 0.05)
    assert agent.claimer._opened(GRANTED) == {PLAIN: Contents({})}


def test_error_of_the_database_that_stays_refuses_what_has_a_key(
    agent: Agent, away: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    away[:] = [1_000, ProgrammingError("no such table")]
    monkeypatch.setattr(database_threads, "OPENING_SECONDS", 0.05)
    contents: Any = agent.claimer._opened(GRANTED)
    assert contents[KEYED].refusal == database_threads.FAILED
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


def test_execution_that_cannot_be_looked_at_is_refused_and_the_others_are_not(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(granted: Any, *, unread: str = "") -> Any:
        if KEYED in [row.pk for row in granted]:
            raise ValueError("a reference that nobody can read")
        return {row.pk: Contents({}) for row in granted}

    monkeypatch.setattr(executions, "opened", broken)
    contents: Any = agent.claimer._opened(GRANTED)
    assert contents[KEYED].refusal == database_threads.FAILED
    assert contents[PLAIN].refusal == ""


def test_execution_whose_secrets_cannot_be_masked_is_refused_and_says_how_large_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def masker_of(secrets: tuple[str, ...]) -> Masker:
        if "too much" in secrets:
            raise ValueError("too much for it: 'too much'")
        return Masker(secrets)

    monkeypatch.setattr(hiding, "masker_of", masker_of)
    given: Any = {KEYED: Contents({}, ("too much", "more")), PLAIN: Contents({}, ("hunter22",))}
    contents, maskers = database_threads._with_maskers(given)
    refusal = "Its secrets, 12 characters, could not be masked: ValueError."
    assert contents == {KEYED: Contents({}, refusal=refusal), PLAIN: Contents({}, ("hunter22",))}
    assert [maskers[pk].text("hunter22") for pk in given] == ["hunter22", "***"]
    assert "too much" not in caplog.text


def test_worker_that_stops_does_not_wait_for_keys(agent: Agent, away: list[Any]) -> None:
    agent.is_stopping = True
    assert agent.claimer._opened(GRANTED) == {PLAIN: Contents({})}
    assert away[0] == 2


@pytest.fixture
def asking(database: str) -> Execution:
    """A claimed execution whose action wants a token."""
    action = make_action("chat.ask", runtime="shell", runtime_options={"token": True})
    return make_execution("running", action=action)


def test_token_of_a_claimed_execution_is_good_whatever_key_the_worker_signs_with(
    agent: Agent, asking: Execution, settings: Any
) -> None:
    settings.SECRET_KEY = "that of the worker"
    other = make_execution("running")
    contents: Any = agent.claimer._opened([asking, other])
    assert ExecutionToken.objects.count() == 1
    assert contents[other.pk].token == ""
    token = contents[asking.pk].token
    assert token in contents[asking.pk].secrets, "it is masked in all that comes of it"
    assert token not in repr(contents)
    settings.SECRET_KEY = "that of the API"
    known = execution_tokens.authenticate(token)
    assert known is not None
    assert (known.execution_id, known.action_ref) == (asking.pk, "chat.ask")


def test_execution_whose_token_cannot_be_stored_while_the_database_is_away_does_not_begin(
    agent: Agent, asking: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    def issue(wanting: Any) -> Any:
        raise OperationalError("away")

    monkeypatch.setattr(execution_tokens, "issue", issue)
    monkeypatch.setattr(database_threads, "OPENING_SECONDS", -1.0)
    other = make_execution("running")
    assert agent.claimer._opened([asking, other]) == {other.pk: Contents({})}
