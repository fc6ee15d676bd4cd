"""The attention strip: only what is not well, the worst first, each with what to do about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlencode

from django.db.models import Count, Min
from django.urls import reverse

from orchestrator.console import expiring
from orchestrator.console.look import Look, for_all
from orchestrator.core import authority, maintenance, presence, reachability, words
from orchestrator.core.admin import alarms
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.presence import Life
from orchestrator.core.words import Kind

T = TypeVar("T")

MOST_NAMED = 5
LOST_WITHIN = timedelta(hours=1)
LOST = "heartbeat stale"
"""`Worker.status_reason` of one that was declared lost."""
BROKER_SECONDS = 0.3
"""A page waits for so long for the broker's answer, and then shows the one before."""
PENDING_LIMIT = 1_000

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
    """What is not well, of what the user may know."""
    found: list[Item] = []
    if look.may("metrics.read"):
        found += [*_services(look), *for_all("installation", lambda: list(_installation(look)))]
    if look.may("workers.read"):
        found += _workers(look)
    if look.may("executions.read"):
        found += _overdue(look)
    if look.may("dlq.read"):
        found += _investigations(look)
    found += _expiring(look)
    if look.may("metrics.read"):
        found += _warnings()
    return sorted(found, key=lambda item: item.kind is not Kind.DANGER)


# --- services ------------------------------------------------------------------------------------

FOLLOWS = {
    "executor": "Nothing new is scheduled, retried or ended in time while none is alive.",
    "beat": "Executors do its maintenance, a little later. Periodic tasks of yours are not sent.",
    "api": "Whoever is connected to it waits.",
    "notifier": "Its clients hear nothing.",
    "sensor": "Its sensors go to other services.",
}


def _services(look: Look) -> Iterator[Item]:
    for life in presence.silent(look.lives, look.now):
        yield _silent(life, look)


def _silent(life: Life, look: Look) -> Item:
    others = sum(1 for other in look.lives if other.kind == life.kind and other.is_alive(look.now))
    is_worst = life.kind == "executor" and not others
    span = words.span(life.silence(look.now).total_seconds())
    where = f"on {life.host}, pid {life.pid}" if life.pid else f"on {life.host}"
    alive = f"{others} other{'s' * (others != 1)} of its kind are alive." if others else ""
    title = f"No {life.kind} is alive: {life.name} has been silent for {span}"
    if not is_worst:
        title = f"{life.kind} {life.name} has been silent for {span}"
    return Item(
        title,
        f"{where}. {alive or FOLLOWS.get(life.kind, '')}",
        Kind.DANGER if is_worst else Kind.WARNING,
        [Act("services", f"{reverse('console:fleet')}#services")],
    )


def _installation(look: Look) -> Iterator[Item]:
    """What the admin says too, but for what presence says sooner."""
    plans = maintenance.plans()
    wrong = [*alarms.paused(plans)]
    is_alive = {life.kind for life in look.lives if life.is_alive(look.now)}
    was_seen = {life.kind for life in look.lives}
    if "executor" in is_alive or "executor" not in was_seen:
        wrong += alarms.executors(plans, look.now)
    if "beat" not in was_seen:
        wrong += alarms.beat(look.now)
    for alarm in wrong:
        acts = [Act("schedule", alarm.url)] if alarm.url else []
        yield Item(alarm.title, alarm.detail, acts=acts)
    if not _broker_answers():
        yield Item(
            "The broker does not answer",
            "Executions are accepted, and wait: no worker gets work until it is back.",
        )


def _broker_answers() -> bool:
    until = time.monotonic() + BROKER_SECONDS
    answer = reachability.in_time(reachability.broker.ask(), until, otherwise=_last["broker"])
    _last["broker"] = answer
    return answer


def _warnings() -> Iterator[Item]:
    """What apps say does not work: sensors, gates."""
    until = time.monotonic() + BROKER_SECONDS
    for line in reachability.in_time(reachability.warnings.ask(), until, otherwise=[]):
        yield Item(line, kind=Kind.WARNING)


# --- the fleet -----------------------------------------------------------------------------------


def _workers(look: Look) -> Iterator[Item]:
    fleet = reverse("console:fleet")
    stale = [each for each in look.workers if each.heartbeat_state(look.now) == "stale"]
    lost = [each for each in look.workers if _was_lost(each, look)]
    unfit = [each for each in look.workers if each.is_up and each.failed_checks]
    if not any(each.is_eligible(look.now) for each in look.workers):
        yield Item(
            "No worker takes new work",
            "Executions wait until one is up, fresh and not cordoned.",
            acts=[Act("fleet", fleet)],
        )
    if stale:
        yield _about(stale, "Silent for too long", "What it has started is settled soon.")
    if lost:
        yield _about(lost, "Lost within the hour", "What it had went elsewhere, or was ended.")
    if unfit:
        yield _about(unfit, "Fails a check of its machine", "It gets no work until that passes.")


def _was_lost(worker: Worker, look: Look) -> bool:
    gone_at = worker.gone_at
    is_recent = gone_at is not None and look.now - gone_at < LOST_WITHIN
    return is_recent and worker.status_reason == LOST


def _about(workers: Sequence[Worker], what: str, detail: str) -> Item:
    names = [each.name for each in workers]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    acts = [Act(each, reverse("console:worker", args=[each])) for each in names[:MOST_NAMED]]
    return Item(f"{what}: {', '.join(names[:MOST_NAMED])}{more}", detail, acts=acts)


# --- work ----------------------------------------------------------------------------------------


def _overdue(look: Look) -> Iterator[Item]:
    late = Execution.objects.visible_to(look.user).open().filter(deadline_at__lte=look.now)
    number = _counted(look, "executions.read", late.order_by()[:PENDING_LIMIT].count)
    if number:
        url = f"{reverse('console:executions')}?{urlencode({'q': 'is:overdue'})}"
        yield Item(
            f"{_bounded(number)} past their deadline",
            "An executor ends them at the next look.",
            acts=[Act("which", url)],
        )


def _investigations(look: Look) -> Iterator[Item]:
    pending = DLQEntry.objects.visible_to(look.user).pending().order_by()[:PENDING_LIMIT]
    found = _counted(
        look, "dlq.read", lambda: pending.aggregate(number=Count("pk"), oldest=Min("dlq_timestamp"))
    )
    if found["number"]:
        age = words.span((look.now - found["oldest"]).total_seconds())
        yield Item(
            f"{_bounded(found['number'])} to look into, the oldest for {age}",
            kind=Kind.WARNING,
            acts=[Act("triage", reverse("console:triage"))],
        )


def _counted(look: Look, permission: str, count: Callable[[], T]) -> T:
    """What is the same for all who may see all of it is counted once for them."""
    is_everywhere = authority.reach(look.user, permission).is_everywhere
    return for_all(f"counted.{permission}", count) if is_everywhere else count()


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
    return f"{number:,} or more" if number >= PENDING_LIMIT else f"{number:,}"
