"""The bound of an orchestrator's API: the least that keeps the promise of a durable request.

The endpoint of `fastapi_celery`, which also asks for a token, and keeps the request: the digest of
the token is looked up, a row and its first transition are committed, and then `delay` sends the
message. Two statements, written by hand for psycopg; a request is validated, and nothing more. What
Muster takes beyond this is its own code.
"""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Annotated, Any
from uuid import UUID

import psycopg
import uuid_utils.compat as uuid_utils
from fastapi import FastAPI, Header, HTTPException  # type: ignore[import-not-found, unused-ignore]
from psycopg.types.json import Jsonb

from benchmarks.rivals import BY_HAND_TOKEN, raw_celery
from benchmarks.rivals.done import begin, is_finished  # noqa: F401 - called by name
from benchmarks.rivals.fastapi_celery import NewExecution, ready

_local = threading.local()

api = FastAPI(lifespan=ready)


def prepare() -> None:
    """Make the tables, and what `delay` needs."""
    raw_celery.prepare()
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute(
            """
            CREATE TABLE token (digest text PRIMARY KEY, name text);
            CREATE TABLE execution (
                id uuid PRIMARY KEY, action text, parameters jsonb, status text,
                requested_by text, created_at timestamptz DEFAULT now()
            );
            CREATE INDEX ON execution (id) WHERE status = 'requested';
            CREATE TABLE event (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                execution_id uuid REFERENCES execution, event text, at timestamptz DEFAULT now()
            );
            CREATE INDEX ON event (execution_id);
            """
        )
        connection.execute("INSERT INTO token VALUES (%s, 'benchmark')", [_digest(BY_HAND_TOKEN)])


def some_execution() -> str:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        ((id,),) = connection.execute("SELECT id FROM execution ORDER BY id DESC LIMIT 1")
    return str(id)


@api.post("/api/v1/executions", status_code=201)
def submit(new: NewExecution, authorization: Annotated[str, Header()]) -> dict[str, str]:
    connection = _connection()
    caller = _caller(connection, authorization)
    id = uuid_utils.uuid7()
    connection.execute(
        """
        WITH accepted AS (
            INSERT INTO execution VALUES (%s, %s, %s, 'scheduled', %s) RETURNING id
        )
        INSERT INTO event (execution_id, event) SELECT id, 'schedule' FROM accepted
        """,
        [id, new.action_ref, Jsonb(new.parameters), caller],
    )
    raw_celery.noop.delay()
    return {"id": str(id)}


@api.get("/api/v1/executions/{id}")
def show(id: UUID, authorization: Annotated[str, Header()]) -> dict[str, Any]:
    connection = _connection()
    _caller(connection, authorization)
    rows = connection.execute(
        """
        SELECT execution.*, event.event, event.at FROM execution
        LEFT JOIN event ON event.execution_id = execution.id WHERE execution.id = %s
        """,
        [id],
    ).fetchall()
    if not rows:
        raise HTTPException(404)
    names = ("id", "action_ref", "parameters", "status", "requested_by", "created_at")
    history = [{"event": event, "at": at} for *_, event, at in rows]
    return {**dict(zip(names, rows[0], strict=False)), "history": history}


def _connection() -> psycopg.Connection[Any]:
    if not hasattr(_local, "connection"):
        _local.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    connection: psycopg.Connection[Any] = _local.connection
    return connection


def _caller(connection: psycopg.Connection[Any], authorization: str) -> str:
    digest = _digest(authorization.removeprefix("Bearer "))
    row = connection.execute("SELECT name FROM token WHERE digest = %s", [digest]).fetchone()
    if row is None:
        raise HTTPException(401)
    return str(row[0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
