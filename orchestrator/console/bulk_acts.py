"""Order in bulk, and stop an order."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.bulk import ordering
from orchestrator.bulk.ordering import Wish
from orchestrator.console import acts
from orchestrator.console.acts import Done
from orchestrator.console.look import Look
from orchestrator.console.pages.bulk import TYPED_FROM, chosen, title
from orchestrator.core.errors import MusterError


class NumberMissing(MusterError):
    """The number of rows was not typed as it was shown."""


@acts.verb
def order(look: Look, request: HttpRequest) -> Done:
    """Order what the dialog showed. Sent twice, the form orders once."""
    form = request.POST
    at_most = _number(form.get("matched", ""))
    if at_most > TYPED_FROM and _number(form.get("number", "")) != at_most:
        raise NumberMissing(f"Type {at_most} to do this to as many rows. Nothing was ordered.")
    wish = Wish(
        form.get("verb", ""),
        form.get("q", ""),
        chosen(form.getlist("id")),
        acts.reason(request),
        form.get("resolution", ""),
        idempotency_key=form.get("key") or None,
        up_to=_id(form.get("up_to", "")),
        at_most=at_most,
    )
    row = ordering.order(wish, principal=look.user, now=look.now)
    return Done(f"Ordered: {title(row)}.", reverse("console:bulk_order", args=[row.pk]))


@acts.verb
def stop(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Stop an order, with the reason that is kept."""
    row = ordering.stop(id, principal=look.user, reason=acts.reason(request), now=look.now)
    url = reverse("console:bulk_order", args=[row.pk])
    return Done(f"Stopped at {row.position:,} of {row.matched:,}.", url)


def _number(text: str) -> int:
    """A number as people type it; 0 if it is none."""
    digits = text.strip().replace(",", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def _id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
