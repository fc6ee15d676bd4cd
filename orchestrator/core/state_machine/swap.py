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
class Form:
    """All that the statement of a swap depends on, besides values."""

    model: type[models.Model]
    hops: tuple[Hop, ...]
    common: tuple[str, ...]
    """Fields that get the same value in every row."""
    own: tuple[str, ...]
    """Fields that each move sets for its own row."""
    history: tuple[str, ...]
    """Columns of history that are the same for every row and every hop."""

    @property
    def machine(self) -> Machine:
        machine: Machine = self.model.machine  # type: ignore[attr-defined]
        return machine

    @property
    def common_fields(self) -> list[Any]:
        return [self._field(name) for name in self.common]

    @property
    def own_fields(self) -> list[Any]:
        return [self._field(name) for name in self.own]

    def _field(self, name: str) -> Any:
        return self.model._meta.get_field(name)

    @property
    def history_model(self) -> type[models.Model]:
        model: type[models.Model] = self._field("history").related_model
        return model

    @property
    def raised(self) -> int:
        """By how much the fence rises in total."""
        return self.hops[-1].raised


@dataclass(frozen=True)
class Swap:
    """A batch of rows that make the same transitions, each only if it is still what its move
    says."""

    form: Form
    moves: Sequence[Move]
    common: Mapping[str, Any]
    """Values of fields that are the same for every row."""
    history: Mapping[str, Any]
    """Columns of a row of history that are the same for every row and every hop."""

    @classmethod
    def prepare(
        cls,
        model: type[models.Model],
        machine: Machine,
        way: tuple[Transition, ...],
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: str | None,
    ) -> Swap:
        own = moves[0].values
        common = _common(machine, way, own, now=now, reason=reason)
        history = {"actor": actor, "reason": str(reason or ""), "at": now}
        if machine.keeps_processor:
            history["processor"] = processor()
        form = Form(model, _hops(way), tuple(common), tuple(own), tuple(history))
        return cls(form, moves, common, history)


@cache
def _hops(way: tuple[Transition, ...]) -> tuple[Hop, ...]:
    origins: list[str | None] = [None, *(rule.target.value for rule in way)]
    raised = accumulate(int(rule.new_attempt) for rule in way)
    return tuple(
        Hop(number, rule.event, origin, rule.target.value, by)
        for number, (rule, origin, by) in enumerate(zip(way, origins, raised, strict=False))
    )


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
