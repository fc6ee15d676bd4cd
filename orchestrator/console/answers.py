"""Answers to inquiries, and their cancels."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from orchestrator.console import access, acts, journal
from orchestrator.console.acts import Done
from orchestrator.console.look import Look
from orchestrator.console.pages import inquiries
from orchestrator.core.errors import Forbidden, MusterError, NotFound
from orchestrator.inquiries import answerers, answering
from orchestrator.inquiries.response_form import ResponseForm


def show_or_give(request: HttpRequest, id: UUID) -> HttpResponseBase:
    """The page of an inquiry, or the answer that its form sends: an answer that is refused is shown
    at the page's own address."""
    return give(request, id) if request.method == "POST" else inquiries.show(request, id=id)


@require_POST
@access.staff_only
def give(request: HttpRequest, id: UUID) -> HttpResponseBase:
    """Answer an inquiry. What is wrong is said at the field, and what was typed stays."""
    look = Look.of(request)
    try:
        inquiry = answering.find(id, look.user)
        answerers.require(inquiry, look.user)
    except NotFound as error:
        return access.refused(request, str(error), 404)
    except Forbidden as error:
        return access.refused(request, str(error), 403)
    form = ResponseForm(request.POST, inquiry=inquiry)
    if not form.is_valid():
        return inquiries.show(request, id=id, form=form)
    try:
        answering.respond(id, form.response, by=look.user, now=look.now)
    except MusterError as error:
        # somebody was first, or it is too late: the page says who, and how
        form.add_error(None, str(error))
        return inquiries.show(request, id=id, form=form)
    journal.note(request, inquiry, "Answered")
    messages.success(request, "Answered. What waited for it goes on.")
    return HttpResponseRedirect(reverse("console:inquiry", args=[id]))


@acts.verb
def cancel(look: Look, request: HttpRequest, id: UUID) -> Done:
    """Cancel an inquiry: nobody can answer it any more, and what it holds up fails."""
    reason = acts.reason(request)
    inquiry = answering.cancel(id, by=look.user, now=look.now, reason=reason)
    journal.note(request, inquiry, f"Cancelled: {reason}")
    return Done("Cancelled.", reverse("console:inquiry", args=[id]))
