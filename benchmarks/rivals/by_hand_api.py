"""The bound of an orchestrator's API: the endpoint of `fastapi_celery`, which also asks for a
token, and keeps the request.

The digest of the token is looked up, then `by_hand` accepts the execution and runs it. A request is
validated, and nothing more. What Muster takes beyond this is its own code.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, Header, HTTPException  # type: ignore[import-not-found, unused-ignore]

from benchmarks.rivals import BY_HAND_TOKEN, by_hand
from benchmarks.rivals.by_hand import begin, is_finished, submit  # noqa: F401 - called by name
from benchmarks.rivals.fastapi_celery import NewExecution, ready

api = FastAPI(lifespan=ready)


def prepare() -> None:
    """Make the tables, and a token."""
    by_hand.prepare()
    connection = by_hand.connection()
    connection.execute("CREATE TABLE token (digest text PRIMARY KEY, name text)")
    connection.execute("INSERT INTO token VALUES (%s, 'benchmark')", [_digest(BY_HAND_TOKEN)])


def some_execution() -> str:
    newest = "SELECT id FROM execution ORDER BY id DESC LIMIT 1"
    ((id,),) = by_hand.connection().execute(newest)
    return str(id)


@api.post("/api/v1/executions", status_code=201)
def accept(new: NewExecution, authorization: Annotated[str, Header()]) -> dict[str, str]:
    (id,) = by_hand.accept(1, new.action_ref, new.parameters, _caller(authorization))
    by_hand.run.delay(str(id))
    return {"id": str(id)}


@api.get("/api/v1/executions/{id}")
def show(id: UUID, authorization: Annotated[str, Header()]) -> dict[str, Any]:
    _caller(authorization)
    rows = (
        by_hand.connection()
        .execute(
            """
            SELECT execution.*, event.event, event.at FROM execution
            LEFT JOIN event ON event.execution_id = execution.id WHERE execution.id = %s
            """,
            [id],
        )
        .fetchall()
    )
    if not rows:
        raise HTTPException(404)
    names = ("id", "action", "parameters", "status", "requested_by", "created_at", "updated_at")
    history = [{"event": event, "at": at} for *_, event, at in rows]
    return {**dict(zip(names, rows[0], strict=False)), "history": history}


def _caller(authorization: str) -> str:
    digest = _digest(authorization.removeprefix("Bearer "))
    known = "SELECT name FROM token WHERE digest = %s"
    row = by_hand.connection().execute(known, [digest]).fetchone()
    if row is None:
        raise HTTPException(401)
    return str(row[0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
