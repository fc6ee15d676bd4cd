"""Checks of one service: a line for people, and a verdict for supervisors."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db.models import QuerySet

from orchestrator.core import fleet, presence, words
from orchestrator.core.management import output
from orchestrator.core.models import Worker
from orchestrator.core.presence import Life

Verdict = tuple[bool, str]


def add_argument(group: argparse._ArgumentGroup, kind: str) -> None:
    """Add `--ping [NAME]` to a command that runs a service of this kind."""
    group.add_argument(
        "--ping",
        nargs="?",
        const=kind,
        metavar="NAME",
        help=f"start nothing; exit 0 if it lives on this host, else 1 (default: {kind})",
    )


def answer(command: output.MusterCommand, verdict: Verdict) -> None:
    """Print the line of a verdict. Raises CommandError with it if the service is not well."""
    is_well, line = verdict
    if not is_well:
        raise CommandError(str(output.plain(line)))
    command.say(line)


def of_service(
    kind: str, name: str, *, known: Callable[..., QuerySet[Any]], now: datetime
) -> Verdict:
    """Check that a service of this host was heard of not long ago; returns the verdict and a line.

    `known`: the function that brings its rows, as in `frame.MusterApp.services`. Not all of them
    are asked, as the login of a service may not read the rows of each app.
    """
    host = socket.gethostname()
    here = [Life(*row) for row in known(now=now).filter(kind=kind, host=host)]
    same = [life for life in here if life.name == name]
    if not same:
        others = ", ".join(sorted({life.name for life in here}))
        hint = f"; there are: {others}" if others else ""
        return False, f"{kind} {name}: not heard of on {host} within the last hour{hint}"
    alive = presence.alive(same, now)
    life = max(alive or same, key=lambda each: each.seen_at)
    age = words.span(life.silence(now).total_seconds())
    where = f"on {host}, pid {life.pid}" if life.pid else f"on {host}"
    if alive and life.trouble:
        return False, f"{kind} {name}: alive, but {life.trouble}; {where}"
    if alive:
        return True, f"{kind} {name}: alive, heard of {age} ago; {where}"
    if life.stopped_at is not None:
        ended = words.span((now - life.stopped_at).total_seconds())
        return False, f"{kind} {name}: ended by itself {ended} ago; {where}"
    most = life.silent_after_seconds
    return False, f"{kind} {name}: silent for {age}, dead or frozen after {most:g} s; {where}"


def of_worker(name: str, *, now: datetime) -> Verdict:
    """Check that the worker of this name lives and is fit for work; returns the verdict and a line.

    A worker that drains or is cordoned is well: it follows an order. So is a worker that lacks a
    pack: it can run other actions, and a restart would not help. One that pauses a queue works for
    all others.
    """
    worker = Worker.objects.filter(name=name).first()
    if worker is None:
        return False, f"{name}: no worker of this name ever registered"
    if worker.heartbeat_at is None:
        return False, f"{name}: never started"
    age = words.span((now - worker.heartbeat_at).total_seconds())
    where = f"life {worker.incarnation}, pid {worker.pid} on {worker.host}"
    if worker.gone_at is not None:
        return False, f"{name}: gone ({worker.status_reason}), last heartbeat {age} ago; {where}"
    if not worker.is_fresh(now):
        window = settings.MUSTER.staleness_seconds
        return False, f"{name}: silent for {age}, stale after {window:g} s; {where}"
    if worker.failed_checks:
        failed = "; ".join(f"{check}: {why}" for check, why in sorted(worker.failed_checks.items()))
        return False, f"{name}: unfit for work, {failed}; heartbeat {age} ago; {where}"
    cordon = f", cordoned ({worker.cordon_reason})" if worker.cordoned else ""
    lacks = "".join(f", lacks {what}" for what in fleet.lacking(worker.missing_code))
    paused = fleet.paused(worker.queue_pauses, now=now)
    pauses = "".join(f", pauses {what}" for what in fleet.pauses_of(paused, now=now))
    return True, f"{name}: {worker.status}{cordon}{lacks}{pauses}, heartbeat {age} ago; {where}"
