"""The drills. Each breaks something, watches, and returns measurements.

Each execution of a drill waits for `run_seconds`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

from orchestrator.core import clock, words
from orchestrator.core.models import Execution, ExecutionEvent, Worker, WorkerEvent
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.drills.drill.relay import Relay
from orchestrator.drills.drill.stage import NAMES, SLOTS, DrillStopped, Stage, Timeline, set_up

END_SECONDS = 120.0
"""Added to the time that the settings allow for noticing."""

RUN_SECONDS = 60.0
"""Longest wait until the executions of a drill run."""

BUSY_SECONDS = 5.0
"""The time that a look may take on a busy machine."""

Figures = dict[str, Any]


@dataclass
class Result:
    figures: Figures
    wrong: list[str]
    """Problems: whatever did not go as promised."""


def worker_loss(timeline: Timeline, *, run_seconds: float) -> Result:
    """Kill a worker and all its descendants with SIGKILL, as when its machine fails."""
    with set_up(timeline) as stage:
        once = stage.request("wait_once", count=SLOTS, seconds=run_seconds)
        stage.request("wait", count=3 * SLOTS, seconds=run_seconds)
        # a worker that ran none of `once` would leave nothing to abandon
        lost = stage.wait_for(
            lambda: _runs(stage, run_seconds / 2, one_of=once),
            "its executions run, and one of them may not be repeated",
            within_seconds=RUN_SECONDS,
        )
        ran = stage.held_by(lost, ExecutionStatus.RUNNING)
        held = stage.held_by(lost, ExecutionStatus.SCHEDULED)
        fault_at = timeline.add(
            "fault", f"kill -9 {lost.name}, which runs {ran} and holds {held} more"
        )
        stage.supervisor.signal_tree(lost.name, signal.SIGKILL)
        _watch(stage, lost, fault_at)
        rows, events = stage.rows(), stage.events()
        noticed_at = stage.worker(lost.name).gone_at
        second = [e.at for e in events if e.event == "claim" and e.attempt > 1]
        abandoned = [e.at for e in events if e.to_status == ExecutionStatus.ABANDONED]
        figures = {
            "noticed_seconds": timeline.seconds_to(noticed_at),
            "second_attempt_started_seconds": timeline.seconds_to(min(second, default=None)),
            "abandoned_seconds": timeline.seconds_to(min(abandoned, default=None)),
            "overlap_seconds": stage.overlap_seconds(),
            "last_end_seconds": timeline.seconds_to(max((e.at for e in events), default=None)),
        }
        wrong = _not_ended(rows)
        wrong += _unexpected(
            rows, lambda row: row.status == "completed" or row.pk in once, "was lost"
        )
        wrong += _too_late("noticed", figures["noticed_seconds"], _notice_seconds())
        if not abandoned:
            wrong.append("nothing was abandoned, though one that may not be repeated was lost")
        if figures["overlap_seconds"]:
            wrong.append(f"two attempts overlapped by {figures['overlap_seconds']} s")
        return Result(figures, wrong)


def drain(timeline: Timeline, *, run_seconds: float) -> Result:
    """Send SIGTERM to a worker: it finishes what it runs, and gives back the rest."""
    with set_up(timeline) as stage:
        stage.request("wait", count=4 * SLOTS, seconds=run_seconds)
        left = stage.wait_for(
            lambda: _runs(stage, run_seconds / 2), "its executions run", within_seconds=RUN_SECONDS
        )
        ran = stage.held_by(left, ExecutionStatus.RUNNING)
        held = stage.held_by(left, ExecutionStatus.SCHEDULED)
        process = stage.supervisor.children[left.name].process
        fault_at = timeline.add(
            "fault", f"SIGTERM {left.name}, which runs {ran} and holds {held} more"
        )
        assert process is not None
        process.send_signal(signal.SIGTERM)
        draining_at = stage.wait_for(
            lambda: _status_is(stage, left, Worker.Status.DRAINING), "it drains", within_seconds=60
        )
        timeline.add("noticed", f"{left.name} is draining: no more work for it", at=draining_at)
        _watch(stage, left, fault_at)
        stage.wait_for(lambda: process.poll() is not None, "it has ended", within_seconds=60)
        timeline.add("stopped", f"{left.name} exited with {process.returncode}")
        rows, events = stage.rows(), stage.events()
        given_back = [e.at for e in events if e.event == "give_back"]
        figures = {
            "draining_seconds": timeline.seconds_to(draining_at),
            "given_back_seconds": timeline.seconds_to(min(given_back, default=None)),
            "drain_seconds": timeline.seconds_to(stage.worker(left.name).gone_at),
            "exit_status": process.returncode,
            "last_end_seconds": timeline.seconds_to(max((e.at for e in events), default=None)),
        }
        wrong = _not_ended(rows)
        wrong += _unexpected(rows, lambda row: row.status == "completed", "did not complete")
        wrong += _unexpected(rows, lambda row: row.retry_count == 0, "was retried")
        if process.returncode:
            wrong.append(f"{left.name} exited with {process.returncode}, expected 0")
        return Result(figures, wrong)


def broker_loss(timeline: Timeline, *, seconds: float, run_seconds: float) -> Result:
    """Cut one worker's connection to the broker for this long; all others stay."""
    with ExitStack() as held:
        relay = held.enter_context(Relay(*_broker_address()))
        name = NAMES[0]
        stage = held.enter_context(
            set_up(timeline, names=[name], environment={"BROKER_URL": _relayed_url(relay.port)})
        )
        worker = stage.worker(name)
        during = stage.request("wait", count=SLOTS, seconds=min(run_seconds, seconds / 2))
        stage.wait_for(
            lambda: stage.held_by(worker, ExecutionStatus.RUNNING) == SLOTS,
            "its executions run",
            within_seconds=RUN_SECONDS,
        )
        fault_at = timeline.add(
            "fault", f"{name} is cut off from the broker for {seconds:g} s; it runs {SLOTS}"
        )
        relay.cut()
        stage.wait_for(
            lambda: clock.now().timestamp() > fault_at.timestamp() + seconds,
            "the cut",
            within_seconds=seconds + 30,
        )
        after = stage.request("wait", count=SLOTS, seconds=0.2)
        mended_at = timeline.add("mended", f"{name} may reach the broker again")
        relay.mend()
        _watch(stage, worker, fault_at)
        rows, events = stage.rows(), stage.events()
        ended = [e.at for e in events if e.execution_id in during and e.to_status in TERMINAL]
        claims = [e.at for e in events if e.execution_id in after and e.event == "claim"]
        claimed_at = min(claims, default=None)
        figures = {
            "cut_seconds": timeline.seconds_to(mended_at),
            "ended_while_cut": sum(at < mended_at for at in ended),
            "recovery_seconds": None
            if claimed_at is None
            else round((claimed_at - mended_at).total_seconds(), 3),
            "incarnations": stage.worker(name).incarnation - worker.incarnation + 1,
        }
        wrong = _not_ended(rows)
        wrong += _unexpected(rows, lambda row: row.status == "completed", "did not complete")
        wrong += _unexpected(rows, lambda row: row.attempt == 1, "was repeated")
        if figures["ended_while_cut"] != SLOTS:
            wrong.append("what ended while the worker was cut off was recorded only afterwards")
        return Result(figures, wrong)


# --- watching ------------------------------------------------------------------------------------


def _runs(
    stage: Stage, least_left_seconds: float, *, one_of: Collection[UUID] | None = None
) -> Worker | None:
    """A worker of the drill whose slots are all taken by executions that have just begun, at least
    one of `one_of` among them; None if there is none yet."""
    busy: Worker | None = None
    begun = stage.begun()
    for worker in Worker.objects.filter(name__in=NAMES):
        running = [
            row
            for row in stage.rows()
            if row.worker_id == worker.pk
            and row.status == ExecutionStatus.RUNNING
            and row.pk in begun
        ]
        ages = [(clock.now() - row.started_at).total_seconds() for row in running if row.started_at]
        wanted = one_of is None or any(row.pk in one_of for row in running)
        if wanted and len(running) == SLOTS and max(ages) < least_left_seconds:
            busy = worker
    return busy


def _watch(stage: Stage, worker: Worker, since: datetime) -> None:
    """Report events until every execution has ended, or the time is up."""
    until = time.monotonic() + END_SECONDS + settings.MUSTER.staleness_seconds
    shown: set[int] = set()
    gone = False
    while time.monotonic() < until:
        current = stage.worker(worker.name)
        if not gone and current.gone_at is not None:
            gone = True
            what = f"{current.name} is inactive: {current.status_reason}"
            stage.timeline.add("noticed", what, at=current.gone_at)
        news = [e for e in stage.events() if e.pk not in shown and e.at > since]
        for (event, reason), group in _grouped(news).items():
            what = "rescheduled" if event in ("retry", "give_back", "schedule") else "started"
            if group[0].to_status in TERMINAL:
                what = "finished"
            stage.timeline.add(what, _detail(event, reason, group), at=group[0].at)
        shown |= {event.pk for event in news}
        if all(row.status in TERMINAL for row in stage.rows()):
            return
        time.sleep(0.1)


def _grouped(events: list[ExecutionEvent]) -> Mapping[tuple[str, str], list[ExecutionEvent]]:
    groups: dict[tuple[str, str], list[ExecutionEvent]] = {}
    for event in events:
        groups.setdefault((event.event, event.reason), []).append(event)
    return groups


def _detail(event: str, reason: str, group: list[ExecutionEvent]) -> str:
    attempts = sorted({one.attempt for one in group})
    numbers = ", ".join(map(str, attempts))
    why = f" ({reason})" if reason and reason != "succeeded" else ""
    return f"{len(group)} x {event}{why}, attempt {numbers}, by {group[0].actor}"


def _status_is(stage: Stage, worker: Worker, status: str) -> datetime | None:
    """The time since which a worker has this status, by its history; None if it has another one."""
    if stage.worker(worker.name).status != status:
        return None
    event = WorkerEvent.objects.of(worker.pk).filter(kind=status).first()
    return event.at if event is not None else clock.now()


# --- judging -------------------------------------------------------------------------------------


def _notice_seconds() -> float:
    """The limit for noticing: heartbeat window, two looks, and some time for a busy machine."""
    muster = settings.MUSTER
    looks_seconds = 2 * muster.maintenance_interval_seconds
    return float(muster.staleness_seconds + looks_seconds + BUSY_SECONDS)


def _not_ended(rows: list[Execution]) -> list[str]:
    return [f"{row.pk} is still {row.status}" for row in rows if row.status not in TERMINAL]


def _unexpected(
    rows: list[Execution], is_right: Callable[[Execution], bool], what: str
) -> list[str]:
    return [
        f"{row.pk} {what}: {row.status}, {row.reason}"
        for row in rows
        if row.status in TERMINAL and not is_right(row)
    ]


def _too_late(what: str, seconds: float | None, limit_seconds: float) -> list[str]:
    if seconds is None:
        return [f"never {what}"]
    if seconds > limit_seconds:
        return [f"{what} after {words.span(seconds)}, expected {words.span(limit_seconds)}"]
    return []


def _broker_address() -> tuple[str, int]:
    """Host and port of the broker. Raises DrillStopped if there is no connection to cut."""
    url = urlsplit(settings.BROKER_URL.split(";")[0])
    if url.scheme == "sqlitemq":
        raise DrillStopped(
            "The embedded broker is a file that every process opens: there is no connection to "
            "cut. Set BROKER_URL to a RabbitMQ to drill its loss."
        )
    if url.scheme not in ("amqp", "pyamqp") or url.hostname is None:
        raise DrillStopped(
            f"The relay passes on plain AMQP, not {url.scheme}://: a certificate would not match "
            "its address. Drill on a port without TLS."
        )
    return url.hostname, url.port or 5672


def _relayed_url(port: int) -> str:
    url = urlsplit(settings.BROKER_URL.split(";")[0])
    login = url.netloc.rpartition("@")[0]
    netloc = f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"
    return str(url._replace(netloc=netloc).geturl())
