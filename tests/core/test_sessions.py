"""What an installation asks of its sessions with PostgreSQL, and that the server takes it."""

from __future__ import annotations

import psycopg
import pytest

from settings import base


def test_sessions_lose_what_they_hold_and_ask_whether_their_peer_lives(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    options = base._database()["OPTIONS"]
    with psycopg.connect(postgres_url, **options) as session:

        def shown(name: str) -> str:
            return str(session.execute(f"SHOW {name}".encode()).fetchall()[0][0])

        assert shown("lock_timeout") == "3s"
        assert shown("idle_in_transaction_session_timeout") == "10s"
        assert shown("statement_timeout") == "30s"
        assert [shown(f"tcp_keepalives_{name}") for name in ("idle", "interval", "count")] == [
            *("5", "2", "3")
        ]
        assert shown("tcp_user_timeout") == "10000"
