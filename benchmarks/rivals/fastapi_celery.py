"""An endpoint that hands a request to Celery: what many would write instead of an orchestrator.

FastAPI's own way for a call that blocks, as `delay` does: a plain function, which it runs in a
thread. Raw Celery is behind it: nobody knows what becomes of a task, and no one is asked for a
token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI  # type: ignore[import-not-found, unused-ignore]
from pydantic import BaseModel

from benchmarks.rivals import raw_celery
from benchmarks.rivals.done import begin, is_finished  # noqa: F401 - called by name
from benchmarks.rivals.raw_celery import prepare  # noqa: F401 - called by name


class NewExecution(BaseModel):
    action_ref: str
    parameters: dict[str, Any] = {}


@asynccontextmanager
async def ready(api: FastAPI) -> AsyncIterator[None]:
    print("ready.", flush=True)
    yield


api = FastAPI(lifespan=ready)


@api.post("/api/v1/executions", status_code=201)
def submit(new: NewExecution) -> dict[str, str]:
    return {"id": raw_celery.noop.delay().id}
