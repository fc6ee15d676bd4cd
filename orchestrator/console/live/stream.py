"""The stream of a visible tab: `GET /console/live?topics=execution,presence`.

`event: moved` has the version of each topic that moved, as JSON; `event: again` ends a stream that
has lasted for long enough, so that who has lost a permission is asked again.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET

from orchestrator.console.access import staff_only
from orchestrator.console.live import topics
from orchestrator.console.live.hub import hub
from orchestrator.core import authority

LONGEST_SECONDS = 300.0
HERE_SECONDS = 15.0
"""A stream that says nothing for longer is closed by many a proxy."""
HERE = ": here\n\n"


@require_GET
@staff_only
def follow(request: HttpRequest) -> HttpResponseBase:
    """Follow what moves of these topics."""
    if hub.is_full:
        return HttpResponse(
            "This process keeps up as many pages as it can", status=503,
            headers={"Retry-After": "30"},
        )  # fmt: skip
    wanted = request.GET.get("topics", "").split(",")
    permitted = topics.permitted(wanted, authority.of_request(request))
    response = StreamingHttpResponse(_events(permitted), content_type="text/event-stream")
    response["X-Accel-Buffering"] = "no"  # nginx would gather it
    return response


async def _events(wanted: frozenset[str]) -> AsyncIterator[str]:
    tab = hub.join(wanted)
    until = time.monotonic() + LONGEST_SECONDS
    try:
        yield HERE
        while time.monotonic() < until and not tab.is_closed:
            moved = await tab.take(within_seconds=HERE_SECONDS)
            yield f"event: moved\ndata: {json.dumps(moved)}\n\n" if moved else HERE
        if not tab.is_closed:
            yield "event: again\ndata: {}\n\n"
    finally:
        hub.leave(tab)
