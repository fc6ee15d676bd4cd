"""Tickets are good once, for half a minute, and their table tells nobody a token."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from django.db import OperationalError, connection

from orchestrator.core.api.problems import Problem
from orchestrator.notifications import tickets
from orchestrator.notifications.models import StreamTicket
from tests.core.api.client import Caller
from tests.factories import NOW
from workers.notifier.admission import Visit, admit

pytestmark = pytest.mark.usefixtures("database")

HEADER = "Bearer mst_secret"


def test_ticket_stands_for_its_header_once() -> None:
    text, expires_at = tickets.make(authorization=HEADER, now=NOW)
    assert expires_at == NOW + timedelta(seconds=30)
    assert tickets.take(text, now=NOW) == HEADER
    assert tickets.take(text, now=NOW) is None


def test_old_ticket_is_good_for_nothing() -> None:
    text, expires_at = tickets.make(authorization=HEADER, now=NOW)
    assert tickets.take(text, now=expires_at) is None
    assert not StreamTicket.objects.exists()


def test_unknown_ticket_is_good_for_nothing() -> None:
    assert tickets.take("mtk_guessed", now=NOW) is None


def test_forgotten_tickets_are_removed_by_the_next() -> None:
    tickets.make(authorization=HEADER, now=NOW)
    tickets.make(authorization=HEADER, now=NOW + timedelta(minutes=1))
    assert StreamTicket.objects.count() == 1


def test_table_knows_neither_the_text_nor_the_token() -> None:
    text, _ = tickets.make(authorization=HEADER, now=NOW)
    row = StreamTicket.objects.get()
    stored = f"{row.digest} {bytes(row.sealed)!r}"
    assert text not in stored
    assert "mst_" not in stored


def test_ticket_of_the_api_has_the_rights_of_its_token(caller: Caller, token: str) -> None:
    answer = caller.post("/stream/tickets")
    assert answer.status_code == 201
    assert tickets.take(answer.json()["ticket"], now=NOW) == f"Bearer {token}"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_ticket_is_looked_up_although_the_last_connection_has_died(database: str) -> None:
    """As after a restart of the server: threads of streams serve no requests of Django."""
    place = connection.settings_dict
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        ours = cursor.fetchone()
    with psycopg.connect(
        host=place["HOST"], port=place["PORT"], user=place["USER"],
        password=place["PASSWORD"], dbname=place["NAME"],
    ) as session:  # fmt: skip
        session.execute("SELECT pg_terminate_backend(%s)", ours)
    with pytest.raises(OperationalError):
        StreamTicket.objects.count()
    with pytest.raises(Problem) as refused:
        admit(Visit({"headers": [], "query_string": b"ticket=mtk_unknown"}))
    assert refused.value.status == 401
