"""The tracking information of a task message: the job that it belongs to, and who follows it.

Members and their meaning are those of CAF's `TrackingInfo.java`; reports have the shape of its
`TrackingReportTask`, version 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.core import json_values

REPORT_CLASSIFIER = "TrackingReportTask"
REPORT_VERSION = 1
COMPLETE, PROGRESS, FAILED, RETRY = "Complete", "Progress", "Failed", "Retry"

MOST_REPORTS = 5
"""Of one message, as in CAF."""

LONGEST_TEXT = 255
LONGEST_URL = 2_000
MOST_MILLISECONDS = 366 * 86_400 * 1_000
TEXTS = {"jobTaskId": 200, "statusCheckUrl": LONGEST_URL}
PLACES = ("trackingPipe", "trackTo")


def read(value: Any) -> dict[str, Any] | None:
    """Read the member `tracking`; times become ISO. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    known: dict[str, Any] = {name: _text(value, name, longest) for name, longest in TEXTS.items()}
    known |= {name: _text(value, name, LONGEST_TEXT) for name in PLACES}
    known["lastStatusCheckTime"] = _time(value.get("lastStatusCheckTime"))
    known["statusCheckIntervalMillis"] = _interval(value.get("statusCheckIntervalMillis"))
    return {name: each for name, each in known.items() if each is not None}


def _text(values: Mapping[str, Any], name: str, longest: int) -> str | None:
    text = values.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > longest:
        raise ValueError(f"{name}: expected text of at most {longest} characters")
    if fault := json_values.text_fault(text):
        raise ValueError(f"{name}: contains {fault}")
    return text


def _time(value: Any) -> str | None:
    """Milliseconds since 1970, as Java writes a `Date`, or ISO."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
        if json_values.is_number(value):
            return datetime.fromtimestamp(value / 1000, tz=UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError("lastStatusCheckTime: expected milliseconds or an ISO time")


def _interval(value: Any) -> int | None:
    if value is None:
        return None
    if not json_values.is_whole(value) or not 0 <= value <= MOST_MILLISECONDS:
        raise ValueError(f"statusCheckIntervalMillis: expected 0 to {MOST_MILLISECONDS:,}")
    return int(value)


def is_to_be_checked(tracking: Mapping[str, Any] | None, *, now: datetime) -> bool:
    """Return True if the job's status is to be asked before its task runs: it has a place to ask,
    and the answer that the sender had is older than the interval."""
    if not tracking or not tracking.get("statusCheckUrl"):
        return False
    checked, interval = (
        tracking.get("lastStatusCheckTime"),
        tracking.get("statusCheckIntervalMillis"),
    )
    if not checked or interval is None:
        return True
    try:
        return datetime.fromisoformat(checked) + timedelta(milliseconds=interval) <= now
    except OverflowError:
        return True


def ends_at(tracking: Mapping[str, Any], destination: str | None) -> bool:
    """Return True if a message to this queue is no longer followed. Queue names are compared
    without their case, as in CAF."""
    track_to = tracking.get("trackTo")
    if track_to is None or destination is None:
        return track_to is None and destination is None
    return bool(track_to.casefold() == destination.casefold())


def report(
    job_task_id: str,
    status: str,
    *,
    failure: Mapping[str, str] | None = None,
    retries: int | None = None,
) -> dict[str, Any]:
    """One report."""
    reported: dict[str, Any] = {"jobTaskId": job_task_id, "status": status}
    if failure is not None:
        reported["failure"] = dict(failure)
    if retries is not None:
        reported["retries"] = retries
    return reported


def encoded(reports: Sequence[Mapping[str, Any]]) -> bytes:
    """The data of a message with these reports: the last ones, if there are too many."""
    return json.dumps({"trackingReports": list(reports[-MOST_REPORTS:])}).encode()
