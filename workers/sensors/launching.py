"""The command, the environment and the keys of a sensor's process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.automation import polls
from orchestrator.automation.kept_keys import Kept
from orchestrator.automation.models import Rule, Sensor, Trigger
from orchestrator.automation.models.sensors import POLL
from orchestrator.core import isolation, key_references
from orchestrator.core.errors import MusterError
from orchestrator.core.packs import environments, fetching
from workers import processes
from workers.runtimes import kept, node

RUNNER = Path(__file__).with_name("python_sensor.py")
ENVIRONMENT_SECONDS = 600.0
"""The longest time that the packages of a pack may take to be installed."""
GRACE_SECONDS = 3.0
"""From SIGTERM to SIGKILL."""
IDLE_LOOK_SECONDS = 0.5

header_keys = Kept(partial(polls.wanted_key, polls.HTTP))
"""The keys in headers of polls, which are needed at each look, and opened once."""


class CannotStart(MusterError):
    """This service lacks something that the sensor needs."""


@dataclass(frozen=True)
class Launch:
    """The process that is started."""

    argv: list[str]
    environment: Mapping[str, str]
    limits: Mapping[str, float]


def fits(sensor: Sensor, labels: Mapping[str, str]) -> bool:
    """Return True if a service with these labels can run the sensor on this host."""
    if not sensor.labels.items() <= labels.items():
        return False
    if sensor.runtime == POLL:
        return True
    if sensor.pack is None or kept.why_not():
        return False
    if sensor.release is None and not os.path.isdir(sensor.pack.path):
        return False  # a linked pack, whose folder other hosts have
    return sensor.runtime != "node" or not node.why_not()


def prepare(sensor: Sensor, mark: str, work_dir: str) -> Launch:
    """Find out how to start a sensor. Raises CannotStart."""
    assert sensor.pack is not None
    if not isolation.is_enough(isolation.of_processes(), isolation.least()):
        raise CannotStart(
            f"a sensor is a process of the level {isolation.of_processes()!r}, and "
            f"MUSTER_LEAST_ISOLATION is {isolation.least()!r}: no sensor of a pack can run here"
        )
    marks = processes.sensor_markers(mark)
    folder = _folder_of(sensor)
    environment = {
        **kept.clean_environment(work_dir, folder),
        "PYTHONUNBUFFERED": "1",
        **sensor.options.get("env", {}),
        **marks,
    }
    limits = kept.limits_of(sensor.options.get("limits", {}), grace_seconds=GRACE_SECONDS)
    limits |= kept.give_to_action(work_dir) | {"idle_look_seconds": IDLE_LOOK_SECONDS}
    return Launch(_argv(sensor, folder, marks), environment, limits)


def _folder_of(sensor: Sensor) -> str:
    """The pack's folder as the sensor's release has it, fetched unless it is here. Raises
    CannotStart."""
    assert sensor.pack is not None
    if sensor.release is None:
        return os.path.abspath(sensor.pack.path)
    try:
        return str(fetching.ensure(sensor.release))
    except fetching.CannotFetch as error:
        raise CannotStart(str(error)) from None


def _argv(sensor: Sensor, path: str, marks: Mapping[str, str]) -> list[str]:
    if sensor.runtime == "python":
        # not resolved if it is a link: modules are found by the name of the folder
        return [
            _python(sensor, path, marks),
            str(RUNNER),
            sensor.entry_point,
            os.path.dirname(path),
        ]
    first, *arguments = sensor.entry_point
    if sensor.runtime == "node":
        return ["node", str(Path(path) / first), *arguments]
    return [str(Path(path) / first) if "/" in first else first, *arguments]


def _python(sensor: Sensor, path: str, marks: Mapping[str, str]) -> str:
    try:
        return environments.python_of(
            Path(path),
            interpreter=sensor.options.get("interpreter", ""),
            directory=environments.directory(isolation.user()),
            timeout_seconds=ENVIRONMENT_SECONDS,
            environment=marks,
            user=isolation.user(),
        )
    except environments.CannotMake as error:
        raise CannotStart(str(error)) from None


def keys_of(sensor: Sensor) -> Kept:
    """The keys that the sensor may get, each opened once for each of its versions."""
    return Kept(partial(polls.wanted_key, sensor.ref))


def open_keys(kept: Kept, references: Sequence[str]) -> dict[str, str]:
    """The values of keys as they are now, by reference. Raises CannotStart."""
    if not references:
        return {}
    opened = kept.of(sorted(references))
    if opened.refusals:
        raise CannotStart(opened.refusals[0])
    return dict(opened.values)


def watched_triggers(sensor: Sensor) -> list[dict[str, Any]]:
    """The triggers of its types that an enabled rule waits for."""
    waited_for = Rule.objects.enabled().values("trigger")
    rows = Trigger.objects.filter(type__ref__in=sensor.trigger_types, pk__in=waited_for)
    return [
        {"id": row.pk, "type": row.type.ref, "parameters": row.parameters}
        for row in rows.select_related("type").order_by("pk")
    ]


def open_header_keys(headers: Mapping[str, Any]) -> dict[str, str]:
    """The values of the keys in the headers of a poll. Raises CannotStart."""
    references = {reference for _, reference in key_references.found(dict(headers))}
    return open_keys(header_keys, list(references))
