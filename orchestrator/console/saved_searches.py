"""Acts on saved searches: keep one, and remove one."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import acts
from orchestrator.console.acts import Done
from orchestrator.console.look import Look
from orchestrator.console.pages.executions import executions_url
from orchestrator.core import cursors
from orchestrator.core.search import saved


@acts.verb
def save(look: Look, request: HttpRequest) -> Done:
    """Keep the search of the form under its name."""
    row = saved.save(
        request.POST.get("name", ""),
        request.POST.get("q", ""),
        is_shared=request.POST.get("is_shared") == "yes",
        principal=look.user,
        now=look.now,
    )
    return Done(f"Saved: {row.name}.", executions_url(row.text))


@acts.verb
def remove(look: Look, request: HttpRequest) -> Done:
    """Remove the one that the form names."""
    try:
        id = cursors.whole_number(request.POST.get("id", ""))
    except ValueError:
        raise saved.UnknownSearch from None
    row = saved.remove(id, principal=look.user)
    return Done(f"Removed: {row.name}.", reverse("console:executions"))
