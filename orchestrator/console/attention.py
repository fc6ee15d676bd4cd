"""The attention strip: only what is not well, the worst first, each with what to do about it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse

from orchestrator.console import counted, expiring
from orchestrator.console.counted import Counted
from orchestrator.console.kept import for_all
from orchestrator.console.look import Look
from orchestrator.core import alarms, maintenance, presence, reachability, words
from orchestrator.core.models import Worker
from orchestrator.core.presence import Life
from orchestrator.core.schedule import Plan
from orchestrator.core.words import Kind

MOST_NAMED = 5
BROKER_SECONDS = 0.3
"""A page waits for so long for the broker's answer, and then shows the one before."""

_last = {"broker": True}


@dataclass(frozen=True)
class Act:
    """A link to where one goes on."""

    text: str
    url: str


@dataclass(frozen=True)
class Item:
    """Something that is not well."""

    title: str
    detail: str = ""
    kind: Kind = Kind.DANGER
    acts: Sequence[Act] = ()


def items(look: Look) -> list[Item]:
    """The things that are not well, of those that the user may know."""
    found: list[Item] = []
    numbers = counted.read(look)
    if look.may("metrics.read"):
        found += _services(look)
        found += for_all("installation", lambda: list(_installation(look, numbers)))
    if look.may("workers.read"):
        found += _workers(look, numbers)
    found += _overdue(numbers.get(counted.OVERDUE, counted.NONE).number)
    found += _investigations(look, numbers.get(counted.PENDING, counted.NONE))
    if numbers.get(counted.EXPIRING, counted.NONE).number:
        found += _expiring(look)
    if look.may("metrics.read"):
        found += _warnings()
    return sorted(found, key=lambda item: item.kind is not Kind.DANGER)


# --- services ------------------------------------------------------------------------------------

FOLLOWS = {
    "executor": "Nothing new is scheduled, retried or ended in time while none is alive.",
    "gate": "Its gates are left to executors, and to other services of its kind.",
    "beat": "Executors do its maintenance, a little later. Periodic tasks of yours are not sent.",
    "api": "Whoever is connected to it waits.",
    "notifier": "Its clients hear nothing.",
    "sensor": "Its sensors go to other services.",
}


def _services(look: Look) -> Iterator[Item]:
    for life in presence.silent(look.lives, look.now):
        yield _silent(life, look)
    for alarm in alarms.troubled(look.lives, look.now):
        yield Item(alarm.title, alarm.detail, acts=[_services_table()])


def _silent(life: Life, look: Look) -> Item:
    alive = presence.alive(look.lives, look.now)
    others = sum(1 for other in alive if other.kind == life.kind)
    is_worst = life.kind == "executor" and not others
    span = words.span(life.silence(look.now).total_seconds())
    where = f"on {life.host}, pid {life.pid}" if life.pid else f"on {life.host}"
    verb = "is" if others == 1 else "are"
    rest = f"{others} other{'s' * (others != 1)} of its kind {verb} alive." if others else ""
    title = f"No {life.kind} is alive: {life.name} has been silent for {span}"
    if not is_worst:
        title = f"{life.kind} {life.name} has been silent for {span}"
    return Item(
        title,
        f"{where}. {rest or FOLLOWS.get(life.kind, '')}",
        Kind.DANGER if is_worst else Kind.WARNING,
        [_services_table()],
    )


def _services_table() -> Act:
    return Act("services", f"{reverse('console:fleet')}#services")


def _installation(look: Look, numbers: Mapping[str, Counted]) -> Iterator[Item]:
    """The alarms that the admin shows too, but for what presence has said sooner, above. A service
    that stopped in good order is not silent, so it is missed here."""
    ran_at = numbers.get(counted.TICKS, counted.NONE).at
    has_paused = numbers.get(counted.PAUSED, counted.NONE).number > 0
    # if all is well, the schedule has nothing to add
    plans = maintenance.plans() if has_paused or _may_be_late(ran_at, look.now) else {}
    wrong = [*alarms.paused(plans)]
    are_silent = {life.kind for life in presence.silent(look.lives, look.now)}
    are_missed = are_silent - {life.kind for life in presence.alive(look.lives, look.now)}
    if plans and "executor" not in are_missed:
        wrong += alarms.executors(plans, ran_at, look.now)
    if "beat" not in are_missed:
        wrong += alarms.beat(numbers.get(counted.NOTED, counted.NONE).at, look.now)
    for alarm in wrong:
        acts = [Act("schedule", alarm.url)] if alarm.url else []
        yield Item(alarm.title, alarm.detail, acts=acts)
    if not _broker_answers():
        yield Item(
            "The broker does not answer",
            "Executions are accepted, and wait: no worker gets work until it is back.",
        )


def _may_be_late(ran_at: datetime | None, now: datetime) -> bool:
    """True if the executors' sign is older than it gets by the settings."""
    plan = Plan(settings.MUSTER.maintenance_interval_seconds)
    return ran_at is None or alarms.is_late(plan, ran_at, now)


def _broker_answers() -> bool:
    until = time.monotonic() + BROKER_SECONDS
    answer = reachability.in_time(reachability.broker.ask(), until, otherwise=_last["broker"])
    _last["broker"] = answer
    return answer


def _warnings() -> Iterator[Item]:
    """The warnings of apps about what does not work: sensors, gates."""
    until = time.monotonic() + BROKER_SECONDS
    for line in reachability.in_time(reachability.warnings.ask(), until, otherwise=[]):
        yield Item(line, kind=Kind.WARNING)


# --- the fleet -----------------------------------------------------------------------------------


def _workers(look: Look, numbers: Mapping[str, Counted]) -> Iterator[Item]:
    if not numbers.get(counted.ELIGIBLE, counted.NONE).number:
        yield Item(
            "No worker takes new work",
            "Executions wait until one is up, fresh and not cordoned.",
            acts=[Act("fleet", reverse("console:fleet"))],
        )
    if not numbers.get(counted.UNWELL, counted.NONE).number:
        return
    unwell = list(counted.unwell(look).order_by("name")[: counted.MOST])
    stale = [each for each in unwell if each.heartbeat_state(look.now) == "stale"]
    lost = [each for each in unwell if not each.is_up]
    unfit = [each for each in unwell if each.is_up and each.failed_checks]
    if stale:
        yield _about(stale, "Silent for too long", "What it has started is settled soon.")
    if lost:
        yield _about(lost, "Lost within the hour", "What it had went elsewhere, or was ended.")
    if unfit:
        yield _about(unfit, "Fails a check of its machine", "It gets no work until that passes.")


def _about(workers: Sequence[Worker], what: str, detail: str) -> Item:
    names = [each.name for each in workers]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    acts = [Act(each, reverse("console:worker", args=[each])) for each in names[:MOST_NAMED]]
    return Item(f"{what}: {', '.join(names[:MOST_NAMED])}{more}", detail, acts=acts)


# --- work ----------------------------------------------------------------------------------------


def _overdue(number: int) -> Iterator[Item]:
    if number:
        url = f"{reverse('console:executions')}?{urlencode({'q': 'is:overdue'})}"
        yield Item(
            f"{_bounded(number)} past their deadline",
            "An executor ends them at the next look.",
            acts=[Act("which", url)],
        )


def _investigations(look: Look, pending: Counted) -> Iterator[Item]:
    if pending.at is not None:
        age = words.span((look.now - pending.at).total_seconds())
        yield Item(
            f"{_bounded(pending.number)} to look into, the oldest for {age}",
            kind=Kind.WARNING,
            acts=[Act("triage", reverse("console:triage"))],
        )


def _expiring(look: Look) -> Iterator[Item]:
    soon = expiring.soon(look)
    if soon is not None:
        is_one = soon.number == 1
        url = reverse("console:inquiry", args=[soon.first])
        yield Item(
            f"{'An inquiry expires' if is_one else f'{soon.number} inquiries expire'} soon, "
            f"the first {soon.left}",
            soon.question,
            kind=Kind.WARNING,
            acts=[Act("answer", url), Act("all", reverse("console:inquiries"))],
        )


def _bounded(number: int) -> str:
    return f"{number:,} or more" if number >= counted.MOST else f"{number:,}"
