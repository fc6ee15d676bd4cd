"""Sensors of packs: installed, enabled, disabled, restarted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from orchestrator.automation import assigning
from orchestrator.automation.models import Sensor
from orchestrator.automation.problems import nearest_or_all
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.models import Pack
from orchestrator.core.packs import ContentReport
from orchestrator.core.schemas import canonical

RELATED = ("pack", "trigger__type", "assignment__service")


class UnknownSensor(NotFound):
    """No sensor has this name."""


class SensorIsRetired(Conflict):
    """The sensor is no longer in its pack."""

    kind = "sensor-is-retired"


class SensorIsDisabled(Conflict):
    """The sensor is disabled: it starts when it is enabled."""

    kind = "sensor-is-disabled"


class SensorIsPoll(Conflict):
    """A poll runs while an enabled rule waits for it: enable or disable the rule."""

    kind = "sensor-is-poll"


class SensorTaken(Conflict):
    """A sensor of this name belongs to another pack."""

    kind = "sensor-taken"


@dataclass(frozen=True, kw_only=True)
class NewSensor:
    """A sensor as a pack describes it."""

    ref: str
    runtime: str
    entry_point: Any
    description: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    trigger_types: Sequence[str] = ()
    keys: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True


def find(ref: str) -> Sensor:
    """The sensor of this name, with its assignment. Raises UnknownSensor."""
    row = Sensor.objects.filter(ref=ref).select_related(*RELATED).first()
    if row is None:
        known = Sensor.objects.in_use().values_list("ref", flat=True)
        near = f"; {nearest_or_all(ref, known)}" if known else ""
        raise UnknownSensor(f"No sensor is called {ref!r:.140}{near}")
    return row


@transaction.atomic
def install_all(
    news: Sequence[NewSensor], *, pack: Pack, now: datetime, actor: str = "pack install"
) -> ContentReport:
    """Bring the sensors of a pack in line with these. One that has changed, or whose pack has
    another release, is restarted with its cursor; one that is gone is retired. Raises
    SensorTaken."""
    refs = [new.ref for new in news]
    for other in Sensor.objects.filter(ref__in=refs).exclude(pack=pack):
        raise SensorTaken(f"The sensor {other} belongs to {other.pack or 'Muster itself'}.")
    rows = Sensor.objects.select_for_update(no_key=True).filter(pack=pack)
    owned = {row.ref: row for row in rows}
    created, updated, unchanged = [], [], []
    for new in news:
        row, digest = owned.get(new.ref), _digest(new, pack)
        if row is None:
            _create(new, pack, digest, now, actor)
            created.append(new.ref)
        elif row.digest == digest and row.retired_at is None:
            unchanged.append(new.ref)
        else:
            _change(row, new, pack, digest, now, actor)
            updated.append(new.ref)
    gone = [row for ref, row in owned.items() if ref not in refs and row.retired_at is None]
    for row in gone:
        _retire(row, now, actor)
    return ContentReport(
        tuple(created), tuple(updated), tuple(unchanged), tuple(row.ref for row in gone)
    )


def enable(ref: str, *, now: datetime, actor: str) -> Sensor:
    """Have it run, whatever its pack says. Raises UnknownSensor, SensorIsRetired, SensorIsPoll."""
    return _switch(ref, enabled=True, now=now, actor=actor)


def disable(ref: str, *, now: datetime, actor: str) -> Sensor:
    """End it, and keep its cursor. Raises UnknownSensor, SensorIsRetired and SensorIsPoll."""
    return _switch(ref, enabled=False, now=now, actor=actor)


@transaction.atomic
def restart(ref: str, *, now: datetime, actor: str) -> Sensor:
    """End it wherever it runs, and start it with its cursor, at once. Raises UnknownSensor,
    SensorIsRetired and SensorIsDisabled."""
    row = _usable(ref)
    if not row.is_enabled:
        raise SensorIsDisabled(f"The sensor {row} is disabled: `sensors enable` starts it")
    assigning.restart(row, now=now, actor=actor)
    return find(ref)


@transaction.atomic
def _switch(ref: str, *, enabled: bool, now: datetime, actor: str) -> Sensor:
    row = _usable(ref)
    if row.trigger_id is not None:
        raise SensorIsPoll
    if row.enabled_override is not enabled:
        row.enabled_override = enabled
        row.save(update_fields=["enabled_override"])
        assigning.follow(row, now=now, actor=actor)
    return find(ref)


def _usable(ref: str) -> Sensor:
    row = find(ref)
    if row.retired_at is not None:
        raise SensorIsRetired(f"The sensor {row} is no longer in its pack")
    return Sensor.objects.select_for_update(no_key=True).get(pk=row.pk)


def _create(new: NewSensor, pack: Pack, digest: str, now: datetime, actor: str) -> None:
    row = Sensor.objects.create(
        ref=new.ref,
        pack=pack,
        release=pack.release,
        digest=digest,
        updated_at=now,
        **_content(new),
    )
    assigning.follow(row, now=now, actor=actor)


def _change(
    row: Sensor, new: NewSensor, pack: Pack, digest: str, now: datetime, actor: str
) -> None:
    values = {
        **_content(new),
        "release": pack.release,
        "digest": digest,
        "retired_at": None,
        "updated_at": now,
    }
    for name, value in values.items():
        setattr(row, name, value)
    row.save()
    assigning.follow(row, now=now, actor=actor)
    assigning.restart(row, now=now, actor=actor)


@transaction.atomic
def retire_all(pack: str, *, now: datetime, actor: str) -> None:
    """End all sensors of a pack that is being removed. What an operator has said of them, and their
    cursors, are kept for the day on which it is installed again."""
    for row in Sensor.objects.in_use().select_for_update(no_key=True).filter(pack__name=pack):
        _retire(row, now, actor)


def _retire(row: Sensor, now: datetime, actor: str) -> None:
    row.retired_at = now
    row.save(update_fields=["retired_at"])
    assigning.follow(row, now=now, actor=actor)


def _content(new: NewSensor) -> dict[str, Any]:
    return {
        "description": new.description,
        "runtime": new.runtime,
        "entry_point": new.entry_point,
        "options": dict(new.options),
        "trigger_types": list(new.trigger_types),
        "keys": list(new.keys),
        "labels": dict(new.labels),
        "enabled_by_pack": new.enabled,
    }


def _digest(new: NewSensor, pack: Pack) -> str:
    """Return the same for definitions that say the same, of packs with the same code."""
    code = {"release": pack.release.digest} if pack.release else {"path": pack.path}
    content = {**_content(new), "pack": pack.version, **code}
    return hashlib.sha256(str(canonical.key(content)).encode()).hexdigest()
