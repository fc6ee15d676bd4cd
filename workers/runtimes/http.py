"""HTTP actions: one request, with the action's parameters filled in.

The entry point is the URL; `method`, `headers`, `query`, `body` and `redirects` are options. The
request is made in a warm process, which never runs code of a pack, or in the worker's own if the
action is trusted (see `workers.isolated.http_request`).

A status of 2xx completes the execution with status, headers and body; any other fails it with the
same, but 503 defers it if the action's options say so. The body is JSON if its type says so, text
otherwise.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Any

from django.conf import settings

from orchestrator.core import isolation
from orchestrator.core.reasons import Reason
from workers.isolated import http_request, results
from workers.runtimes import limits, warm, warm_process
from workers.runtimes.protocol import (
    Call,
    Outcome,
    completed,
    deferred,
    failed,
    interrupted,
    timed_out,
)
from workers.runtimes.warm_process import Function

MIB = 1_048_576
ANSWER_BYTES = 4 * MIB
"""The most that a response of half a MiB is in JSON: six bytes for each character."""

ENTRY_POINT = f"{http_request.__name__}:{http_request.send.__name__}"


BUSY = 503
LONGEST_DIGITS = 20
"""More make no longer wait: there is a longest one."""


def why_not() -> str:
    return warm_process.why_not()


def run(call: Call) -> Outcome:
    started = time.monotonic()
    outcome = _run_here(call) if call.isolation == isolation.TRUSTED else _run_apart(call)
    duration_seconds = round(time.monotonic() - started, 3)
    return Outcome(
        outcome.event, outcome.reason, outcome.result | {"duration_seconds": duration_seconds}
    )


def _run_apart(call: Call) -> Outcome:
    function = Function(
        pack_path="",
        folder=str(settings.BASE_DIR),
        entry_point=ENTRY_POINT,
        parameters=_asked(call),
        limit_bytes=ANSWER_BYTES,
    )
    return warm.run(call, function, _concluded)


def _run_here(call: Call) -> Outcome:
    try:
        with limits.limit(
            limits.name_of(call.execution_id, call.attempt),
            timeout_seconds=call.timeout_seconds,
            again_seconds=call.cancel_grace_seconds,
        ):
            return _concluded(call, http_request.send(**_asked(call)))
    except limits.TimeLimitReached:
        return timed_out(call)
    except limits.Interrupted:
        return interrupted("The request was interrupted.")


def _asked(call: Call) -> dict[str, Any]:
    most_bytes = min(
        int(call.limits.get("output_mb", settings.MUSTER.action_output_mb) * MIB),
        results.LIMIT_BYTES // 2,  # it must fit into a result, including escapes
    )
    return {
        "url": str(call.entry_point),
        "options": call.options,
        "parameters": call.parameters,
        "allowed_networks": settings.MUSTER.http_allowed_networks,
        "most_bytes": most_bytes,
        "timeout_seconds": call.timeout_seconds,
    }


def _concluded(call: Call, answer: Any) -> Outcome:
    end, message, details = answer["end"], answer["message"], answer["details"]
    if details.get("status") == BUSY and call.options.get("status_503") == "defer":
        after_seconds = retry_after(
            details.get("headers", {}).get("retry-after", ""), now=time.time()
        )
        return deferred(message, after_seconds=after_seconds, **details)
    match end:
        case "completed":
            return completed(details)
        case "timed_out":
            return timed_out(call)
        case "address_refused":
            return failed(message, reason=Reason.ADDRESS_REFUSED)
        case "too_large":
            return failed(message, reason=Reason.OUTPUT_LIMIT_EXCEEDED, **details)
    return failed(message, **details)


def retry_after(header: str, *, now: float) -> float | None:
    """The seconds that a Retry-After asks for: a number of them, or a date (RFC 9110, 10.2.3).
    None if it is neither. `now` is in seconds since 1970."""
    if header.isascii() and header.isdigit():
        return float(header[:LONGEST_DIGITS])
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (ValueError, OverflowError):
        return None
