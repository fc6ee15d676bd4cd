"""The content of a compare-and-swap, the same for every database."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from django.db import models

from orchestrator.core.state_machine.machine import Machine, Move, Transition


class Hop(NamedTuple):
    """One of the transitions that a row makes at once, as its history records it."""

    number: int
    event: str
    origin: str | None
    """None: the state in which the row was."""
    target: str
    raised: int
    """By how much the fence has risen with this hop."""


@dataclass(frozen=True)
class Swap:
    """A batch of rows that make the same transitions, each only if it is still what its move
    says."""

    model: type[models.Model]
    machine: Machine
    moves: Sequence[Move]
    hops: Sequence[Hop]
    common: Mapping[str, Any]
    """Values of fields that are the same for every row."""
    history: Mapping[str, Any]
    """Columns of a row of history that are the same for every row and every hop."""

    @classmethod
    def prepare(
        cls,
        model: type[models.Model],
        machine: Machine,
        way: Sequence[Transition],
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: str | None,
    ) -> Swap:
        common = _common(machine, way, moves[0].values, now=now, reason=reason)
        history = {"actor": actor, "reason": str(reason or ""), "at": now}
        if machine.keeps_processor:
            history["processor"] = processor()
        return cls(model, machine, moves, _hops(way), common, history)

    @property
    def fields(self) -> list[Any]:
        """The fields that each move sets for its own row."""
        return [self.field(name) for name in self.moves[0].values]

    def field(self, name: str) -> Any:
        return self.model._meta.get_field(name)

    @property
    def history_model(self) -> type[models.Model]:
        model: type[models.Model] = self.field("history").related_model
        return model

    @property
    def raised(self) -> int:
        """By how much the fence rises in total."""
        return self.hops[-1].raised


def _hops(way: Sequence[Transition]) -> list[Hop]:
    origins: list[str | None] = [None, *(rule.target.value for rule in way)]
    raised = accumulate(int(rule.new_attempt) for rule in way)
    return [
        Hop(number, rule.event, origin, rule.target.value, by)
        for number, (rule, origin, by) in enumerate(zip(way, origins, raised, strict=False))
    ]


def _common(
    machine: Machine,
    way: Sequence[Transition],
    given: Mapping[str, Any],
    *,
    now: datetime,
    reason: str | None,
) -> dict[str, Any]:
    """Values that the transitions write themselves, except those that the moves give."""
    target = way[-1].target
    values: dict[str, Any] = {machine.column: target.value}
    values |= dict.fromkeys(machine.cleared_columns)
    values |= dict.fromkeys(machine.entered_columns, now)
    if stamp := machine.stamps.get(target):
        values[stamp] = now
    if target in machine.ended:
        values["ended_at"] = now
    elif way[0].sources & machine.ended:
        values["ended_at"] = None
    if reason is not None and machine.reason_column:
        values[machine.reason_column] = str(reason)
    return {name: value for name, value in values.items() if name not in given}


@cache
def _host() -> str:
    return socket.gethostname()


def processor() -> str:
    """This process, as the history names it: host and process id."""
    return f"{_host()}:{os.getpid()}"[:100]
