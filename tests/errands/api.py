"""Errands over the API."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.http import HttpResponse
from ninja import Body, Router
from pydantic import BaseModel, ConfigDict

from orchestrator.core.api import problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.shown.documents import Shown
from tests.errands import verbs
from tests.errands.models import Errand
from tests.errands.states import ErrandState

router = Router(tags=["errands"])


class NewErrand(BaseModel):
    """What is to be done."""

    model_config = ConfigDict(extra="forbid")

    name: str


class ErrandOut(Shown):
    """An errand."""

    id: UUID
    state: ErrandState
    execution_id: UUID | None
    created_at: datetime


@router.post("", auth=needs("errands.ask"), response=documented(404, _201=ErrandOut))
def ask(request: AuthenticatedRequest, new: Body[NewErrand]) -> HttpResponse:
    """Ask for an errand."""
    errand = verbs.ask(new.name, now=request.auth.now)
    return reply(ErrandOut.model_validate(errand), status=201)


@router.get("/{errand_id}", auth=needs("errands.read"), response=documented(404, _200=ErrandOut))
def get(request: AuthenticatedRequest, errand_id: UUID) -> HttpResponse:
    """One errand."""
    errand = Errand.objects.filter(pk=errand_id).first()
    if errand is None:
        raise problems.not_found(f"No errand has the id {errand_id}")
    return reply(ErrandOut.model_validate(errand))
