"""Gates that take nothing in although they are open, and why."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from orchestrator.core import words
from orchestrator.queues.models import Gate, Keeper

MOST_NAMED = 20


class Trouble(enum.StrEnum):
    """The trouble of a gate, in words that name no host: everybody may read them."""

    NO_KEEPER = "no executor keeps it"
    SILENT = "its keeper is silent"
    UNREACHABLE = "its broker cannot be reached"
    REFUSED = "its broker refuses its queues"


@dataclass(frozen=True)
class CutOff:
    """An open gate that takes nothing in."""

    queue: str
    trouble: Trouble
    text: str
    """The same with everything that is known."""


def cut_off(*, now: datetime) -> list[CutOff]:
    """All of them, by name. A gate is well while one keeper of its broker serves it."""
    gates = Gate.objects.filter(queue__accepts=True)
    rows = list(gates.order_by("queue__name").values_list("queue__name", "broker"))
    keepers: dict[str, list[Keeper]] = defaultdict(list)
    for keeper in Keeper.objects.order_by("seen_at") if rows else ():
        keepers[keeper.broker].append(keeper)
    found = [_looked_at(name, keepers[broker], now) for name, broker in rows]
    return [each for each in found if each is not None]


def _looked_at(name: str, keepers: Collection[Keeper], now: datetime) -> CutOff | None:
    alive = [keeper for keeper in keepers if keeper.is_alive(now)]
    if not alive:
        return _unkept(name, keepers, now)
    if refusing := [keeper for keeper in alive if name in keeper.refused]:
        return CutOff(name, Trouble.REFUSED, refusing[-1].refused[name])
    if all(keeper.problem and not keeper.refused for keeper in alive):
        return CutOff(name, Trouble.UNREACHABLE, alive[-1].problem)
    return None


def _unkept(name: str, keepers: Collection[Keeper], now: datetime) -> CutOff:
    if not keepers:
        return CutOff(name, Trouble.NO_KEEPER, str(Trouble.NO_KEEPER))
    *_, last = keepers
    silent = words.span((now - last.seen_at).total_seconds())
    return CutOff(name, Trouble.SILENT, f"its keeper {last.name} has been silent for {silent}")


def warnings(*, now: datetime) -> list[str]:
    """A line for each of them; see `frame.MusterApp.warnings`."""
    found = cut_off(now=now)
    lines = [f"gate {each.queue}: {each.trouble}" for each in found[:MOST_NAMED]]
    more = len(found) - len(lines)
    return [*lines, f"{more} more gates take nothing in"] if more else lines
