"""Tickets for streams."""

from __future__ import annotations

from datetime import datetime

from django.http import HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.replies import documented, reply
from orchestrator.notifications import tickets

router = Router(tags=["stream"])


class TicketShown(BaseModel):
    """A ticket for one stream."""

    ticket: str = Field(description="For `?ticket=`; good once.")
    expires_at: datetime = Field(description="A stream has to be opened before.")


@router.post("/tickets", auth=needs("stream.read"), response=documented(_201=TicketShown))
def make_ticket(request: AuthenticatedRequest) -> HttpResponse:
    """Make a ticket, with which a browser opens one stream: it cannot send a token in a header, and
    a token in a URL would be logged. The stream has the rights of the token that asks."""
    text, expires_at = tickets.make(
        authorization=request.META["HTTP_AUTHORIZATION"], now=request.auth.now
    )
    return reply(TicketShown(ticket=text, expires_at=expires_at), status=201)
