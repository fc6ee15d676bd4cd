"""Catalogue: what can run? Packs with their actions, and one action."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from orchestrator.console import access, draw, paging
from orchestrator.console.access import Context
from orchestrator.console.kept import for_all
from orchestrator.console.look import Look
from orchestrator.console.pages.executions import executions_url
from orchestrator.core import advice, words
from orchestrator.core.advice import Record
from orchestrator.core.errors import NotFound
from orchestrator.core.models import Action, Execution, Pack, Release
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.search import term
from orchestrator.core.shown import actions as shown
from orchestrator.core.shown import executions as executions_shown
from orchestrator.core.shown import packs as packs_shown
from orchestrator.core.shown.values import At, Fact, Json, Prose, said
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.core.words import Kind, kind_of

ACTIONS_MAX = 500
RELEASES_MAX = 20
RECENT = timedelta(days=1)
RECENT_MAX = 10_000
"""Of the executions of the last day, the newest so many are counted."""
RECORD_DAYS = 7
RUNS_MAX = 10


class UnknownAction(NotFound):
    """No action has this name."""


class UnknownPack(NotFound):
    """No pack has this name."""


@dataclass(frozen=True)
class Outcome:
    """The number of executions of an action that ended in one way."""

    status: str
    number: int
    kind: Kind
    url: str


@dataclass(frozen=True)
class ActionRow:
    """An action as the list shows it."""

    action: Action
    outcomes: Sequence[Outcome]

    @property
    def state(self) -> str:
        return state_of(self.action)

    @property
    def again(self) -> str:
        return "again" if self.action.idempotent else "not again"


@dataclass(frozen=True)
class PackRow:
    """A pack with its actions."""

    pack: Pack
    actions: Sequence[ActionRow]

    @property
    def state(self) -> str:
        return pack_state(self.pack)


@access.page("catalogue", needs="actions.read", topics="clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """Packs with their actions, and how these ended in the last day."""
    text = paging.typed(request)
    actions = list(_matching(look, text)[: ACTIONS_MAX + 1])
    ended = _ended(look) if look.may("executions.read") else {}
    rows = [ActionRow(each, _outcomes(each, ended, look)) for each in actions[:ACTIONS_MAX]]
    return {
        "title": "Catalogue",
        "here": "catalogue",
        "packs": [PackRow(pack, list(theirs)) for pack, theirs in groupby(rows, _pack_of)],
        "text": text,
        "actions_max": ACTIONS_MAX if len(actions) > ACTIONS_MAX else 0,
        "recent_max": f"{RECENT_MAX:,}",
    }


def _pack_of(row: ActionRow) -> Pack:
    return row.action.pack


def _matching(look: Look, text: str) -> Any:
    rows = Action.objects.visible_to(look.user).filter(retired_at__isnull=True)
    rows = rows.filter(pack__removed_at__isnull=True).select_related("pack")
    for word in text.split():
        rows = rows.filter(Q(ref__icontains=word) | Q(description__icontains=word))
    return rows.defer("parameters_schema", "entry_point", "runtime_options").order_by("ref")


def _ended(look: Look) -> Mapping[str, Mapping[str, int]]:
    """The ends of the executions of the last day, by action."""
    return for_all("catalogue", lambda: _count_ended(look.now))


def _count_ended(now: datetime) -> dict[str, Counter[str]]:
    recent = Execution.objects.filter(created_between(now - RECENT, None))
    newest = recent.order_by("-pk").values_list("action_ref", "status")[:RECENT_MAX]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for ref, status in newest:
        if status in TERMINAL:
            found[ref][status] += 1
    return dict(found)


def _outcomes(action: Action, ended: Mapping[str, Mapping[str, int]], look: Look) -> list[Outcome]:
    counts = ended.get(action.ref, {})
    if not counts or not look.may("executions.read", action.place):
        return []
    return [
        Outcome(
            status,
            counts[status],
            kind_of(status),
            executions_url(f"{term('action', action.ref)} status:{status} created:<24h"),
        )
        for status in ExecutionStatus
        if counts.get(status)
    ]


def state_of(action: Action) -> str:
    """`enabled`, `disabled`, or `retired`."""
    if action.retired_at is not None:
        return "retired"
    return "enabled" if action.enabled else "disabled"


def pack_state(pack: Pack) -> str:
    """`installed`, `linked` to a folder, `being removed`, or `removed`."""
    if pack.removed_at is not None:
        return "removed"
    if pack.draining_since is not None:
        return "being removed"
    return "installed" if pack.release_id else "linked"


# --- one action ----------------------------------------------------------------------------------


@access.page("action", needs="actions.read", topics="execution,clock")
def show(look: Look, request: HttpRequest, ref: str) -> Context:
    """An action: its parameters, how it runs, how its runs ended, and advice on its limits."""
    rows = Action.objects.visible_to(look.user).select_related("pack", "pack__release")
    action = rows.filter(ref=ref).first()
    if action is None:
        raise UnknownAction(f"No action is called {ref[:130]!r}{_near(look, ref)}")
    sees_runs = look.may("executions.read", action.place)
    return {
        "title": action.ref,
        "here": "catalogue",
        "action": action,
        "state": state_of(action),
        "situation": draw.facts(situation(action), seen_by=look.user),
        "running": draw.facts(running(action, look), seen_by=look.user),
        "failing": draw.facts(failing(action), seen_by=look.user),
        "schema": draw.json(shown.parameters_schema(action)),
        "record": _record(action, look) if sees_runs else None,
        "runs": _runs(action, look) if sees_runs else [],
        "changes": _changes(action, look) if look.may("metrics.read") else [],
        "days": RECORD_DAYS,
        "run_url": reverse("console:run-action", args=[action.ref])
        if _may_run(action, look)
        else "",
        "executions_url": executions_url(term("action", action.ref)) if sees_runs else "",
    }


def _near(look: Look, ref: str) -> str:
    known = Action.objects.visible_to(look.user).values_list("ref", flat=True)[:ACTIONS_MAX]
    return words.did_you_mean(ref, known)


def _run_url(action: Action) -> str:
    return reverse("console:run-action", args=[action.ref])


def _may_run(action: Action, look: Look) -> bool:
    if not action.enabled or action.retired_at is not None:
        return False
    needed = ["executions.run"] + (["actions.run_any_command"] if action.dangerous else [])
    return all(look.may(each, action.place) for each in needed)


@dataclass(frozen=True)
class Figures:
    """The record of an action in words."""

    record: Record

    @property
    def facts(self) -> list[Fact]:
        record = self.record
        rate = record.success_rate
        median, p95 = record.median_seconds, record.p95_seconds
        return said(
            [
                ("Completed", "no end yet" if rate is None else f"{rate:.1%} of what ended"),
                ("Ended", ", ".join(self._ended())),
                ("Half of the runs took at most", None if median is None else words.span(median)),
                ("95 % took at most", None if p95 is None else words.span(p95)),
            ]
        )

    def _ended(self) -> Iterator[str]:
        for status in ExecutionStatus:
            if number := self.record.ended.get(status):
                yield f"{number:,} {status}"

    @property
    def basis(self) -> str:
        """The executions that were looked at, in words."""
        number = self.record.looked_at
        if number >= advice.SAMPLE_SIZE:
            return f"Of the newest {number:,} executions of the last {RECORD_DAYS} days."
        return f"Of {number:,} executions of the last {RECORD_DAYS} days."


Measured = tuple[Record, list[advice.Change]]


def _measured(action: Action, look: Look) -> Measured:
    """Its record, and what to change of its limits."""
    return for_all(f"action.{action.pk}", lambda: _measure(action, look.now))


def _measure(action: Action, now: datetime) -> Measured:
    runs = advice.newest_runs(action.ref, days=RECORD_DAYS, now=now)
    advised = advice.of(action, runs)
    return advice.record(runs), list(advice.changes(advised)) if advised else []


def _record(action: Action, look: Look) -> dict[str, Any]:
    figures = Figures(_measured(action, look)[0])
    return {"facts": draw.facts(figures.facts, seen_by=look.user), "basis": figures.basis}


def _changes(action: Action, look: Look) -> Sequence[advice.Change]:
    return _measured(action, look)[1]


@dataclass(frozen=True)
class Run:
    """One of its newest executions."""

    execution: Execution
    message: str
    kind: Kind


def _runs(action: Action, look: Look) -> list[Run]:
    newest = Execution.objects.filter(action_ref=action.ref).order_by("-pk")
    rows = list(newest.select_related("worker").defer("parameters", "result")[:RUNS_MAX])
    messages = executions_shown.messages(rows, seen_by=look.user)
    return [Run(each, messages.get(each.pk, ""), kind_of(each.status)) for each in rows]


def situation(action: Action) -> list[Fact]:
    """The facts of an action: what it is, and where it comes from."""
    pack = action.pack
    needs = "`executions.run`" + (" and `actions.run_any_command`" if action.dangerous else "")
    release = pack.release.short if pack.release else "none: its code is read from its folder"
    return said(
        [
            ("Action", action.ref),
            ("Description", action.description),
            ("To run it", Prose(needs)),
            ("Pack", f"{pack.name} {pack.version}, {pack_state(pack)}"),
            ("Release", release),
            ("Updated", At(action.updated_at)),
        ]
    )


def running(action: Action, look: Look) -> list[Fact]:
    """The facts of how an action runs."""
    options = shown.options(action, seen_by=look.user)
    return said(
        [
            ("Runtime", action.runtime),
            ("Workers with", words.labels(action.worker_selector) or "any labels"),
            ("Queue", action.queue or "default"),
            ("Entry point", Json(action.entry_point)),
            ("Options", Json(options) if options else None),
            ("Isolation", action.isolation),
            ("Limits", Json(action.limits) if action.limits else "the installation's"),
            ("Time limit", _span(action.timeout_seconds) or "the installation's"),
            ("Longest wait in a queue", _wait(action)),
        ]
    )


def failing(action: Action) -> list[Fact]:
    """The facts of what follows when an action fails."""
    without = {"fail": "it fails at once", "wait": "it waits for one"}[action.on_no_worker]
    again = "yes, even if its outcome is unknown" if action.idempotent else "if it never started"
    return said(
        [
            ("Runs again", again),
            ("Without a worker", without),
            ("Retry policy", Json(action.retry_policy) if action.retry_policy else "none"),
        ]
    )


def _span(seconds: float | None) -> str:
    return words.span(seconds) if seconds else ""


def _wait(action: Action) -> str:
    wait = _span((action.queue_ttl_ms or 0) / 1000) or "the installation's"
    most = _span(action.scheduled_timeout_seconds)
    return f"{wait}, at most {most}" if most else wait


# --- one pack ------------------------------------------------------------------------------------


@access.page("pack", needs="actions.read", topics="clock")
def show_pack(look: Look, request: HttpRequest, name: str) -> Context:
    """A pack: where it comes from, its actions, its releases."""
    rows = Pack.objects.visible_to(look.user).select_related("release")
    pack = rows.filter(name=name).first()
    if pack is None:
        raise UnknownPack(f"No pack is called {name[:60]!r}")
    actions = list(pack.actions.filter(retired_at__isnull=True).order_by("ref")[:ACTIONS_MAX])
    ended = _ended(look) if look.may("executions.read") else {}
    releases = pack.releases.select_related("pack")[:RELEASES_MAX]
    return {
        "title": pack.name,
        "here": "catalogue",
        "pack": pack,
        "state": pack_state(pack),
        "situation": draw.facts(_pack_facts(pack), seen_by=look.user),
        "rows": [ActionRow(each, _outcomes(each, ended, look)) for each in actions],
        "releases": list(_released(releases)),
        "admin_url": reverse("admin:orchestrator_pack_change", args=[pack.pk]),
    }


def _pack_facts(pack: Pack) -> list[Fact]:
    return said(
        [
            ("Version", pack.version),
            ("Description", pack.description),
            ("Installed", At(pack.installed_at)),
            ("From", pack.path),
            ("Release", pack.release.short if pack.release else "none: it is linked to its folder"),
            ("Being removed", At(pack.draining_since) if pack.draining_since else None),
        ]
    )


def _released(rows: Iterable[Release]) -> Iterable[tuple[Release, str]]:
    for each in rows:
        yield each, packs_shown.state(each)
