"""Sensors of StackStorm, run as they are: classes with `setup`, `run` or `poll`, and `cleanup`.

They are called as StackStorm calls them, with a `sensor_service` that has `dispatch`, `get_logger`,
`get_value`, `set_value`, `delete_value` and `list_values`. Values are kept in the sensor's cursor,
as they are: what is to be encrypted, or belongs to the whole installation, is refused.
`st2reactor.sensor.base` need not be installed: its base classes are provided here.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from muster_client import st2
from muster_client.sensors import ALIVE_SECONDS, Channel, Sensor

BASE = "st2reactor.sensor.base"
VALUES = "values"
POLL_SECONDS = 5.0


class _Base:
    """The base class of StackStorm's sensors."""

    def __init__(self, sensor_service: Any, config: dict[str, Any] | None = None) -> None:
        self.sensor_service = self._sensor_service = sensor_service
        self.config = self._config = config or {}

    def setup(self) -> None: ...

    def cleanup(self) -> None: ...

    def add_trigger(self, trigger: dict[str, Any]) -> None: ...

    def update_trigger(self, trigger: dict[str, Any]) -> None: ...

    def remove_trigger(self, trigger: dict[str, Any]) -> None: ...


class PollingSensor(_Base):
    """The base class of those that are asked again and again."""

    def __init__(
        self,
        sensor_service: Any,
        config: dict[str, Any] | None = None,
        poll_interval: float | None = POLL_SECONDS,
    ) -> None:
        super().__init__(sensor_service, config)
        self._poll_interval = poll_interval or POLL_SECONDS

    def get_poll_interval(self) -> float:
        return self._poll_interval

    def set_poll_interval(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval


def provide_base_classes() -> None:
    """Make `from st2reactor.sensor.base import Sensor, PollingSensor` work."""
    st2.provide(BASE, Sensor=_Base, PollingSensor=PollingSensor)


class SensorService:
    """The service that a sensor of StackStorm is given to speak with its surroundings."""

    def __init__(self, shim: Shim) -> None:
        self._shim = shim

    def dispatch(
        self,
        trigger: str | Mapping[str, Any],
        payload: Mapping[str, Any] | None = None,
        trace_tag: str | None = None,
    ) -> None:
        """Report an event; the trigger is a name, a `ref` that `add_trigger` was given, or what it
        was given. `trace_tag` is for traces, which Muster has not: many events may have the same.
        """
        self._shim.send(self._shim.trigger_here(trigger), payload or {})

    dispatch_with_context = dispatch

    def get_logger(self, name: str) -> logging.Logger:
        return logging.getLogger(name)

    def list_values(
        self, local: bool = True, limit: int | None = None, prefix: str | None = None, **_: Any
    ) -> list[Any]:
        _require_own(local)
        found = [
            types.SimpleNamespace(name=name, value=value)
            for name, value in self._shim.values.items()
            if name.startswith(prefix or "")
        ]
        return found[:limit]

    def get_value(
        self, name: str, local: bool = True, scope: Any = None, decrypt: bool = False
    ) -> Any:
        _require_own(local, decrypt)
        return self._shim.values.get(name)

    def set_value(
        self,
        name: str,
        value: Any,
        ttl: Any = None,
        local: bool = True,
        scope: Any = None,
        encrypt: bool = False,
    ) -> Any:
        """Keep a value with the cursor. It does not expire: `ttl` is ignored."""
        _require_own(local, encrypt)
        self._shim.save({VALUES: {**self._shim.values, name: value}})
        return value

    def delete_value(self, name: str, local: bool = True, scope: Any = None) -> bool:
        _require_own(local)
        values = dict(self._shim.values)
        is_there = name in values
        values.pop(name, None)
        self._shim.save({VALUES: values})
        return is_there


def _require_own(local: bool, is_encrypted: bool = False) -> None:
    """Refuse what is of the whole installation, or encrypted. Raises NotInMuster."""
    if is_encrypted:
        raise st2.NotInMuster(
            "Muster encrypts no values of sensors: name a key in the sensor's file, under `keys`"
        )
    if not local:
        raise st2.NotInMuster("Muster has no datastore: a sensor has only its own values")


class Shim(Sensor):
    """Runs a sensor of StackStorm as one of ours."""

    def __init__(self, make: Callable[..., Any], channel: Channel) -> None:
        super().__init__(channel)
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        self.inner = make(sensor_service=SensorService(self), **self._options(make))
        self._known: dict[int, dict[str, Any]] = {}
        self._ids: dict[str, int] = {}
        """Of triggers with parameters, by the `ref` that the sensor was given. None is forgotten:
        it may dispatch to one that was just removed."""
        self._lock = threading.Lock()

    def _options(self, make: Callable[..., Any]) -> dict[str, Any]:
        """The arguments that its constructor takes besides the service. Without an interval in its
        file, that of its class holds."""
        options: dict[str, Any] = {"config": self.parameters}
        interval = self.parameters.get("poll_interval")
        if interval is not None and hasattr(make, "poll"):
            options["poll_interval"] = interval
        wanted = inspect.signature(make).parameters
        if any(each.kind == inspect.Parameter.VAR_KEYWORD for each in wanted.values()):
            return options
        return {name: value for name, value in options.items() if name in wanted}

    @property
    def values(self) -> dict[str, Any]:
        """The values that the sensor keeps."""
        found: dict[str, Any] = self.cursor.get(VALUES, {})
        return found

    def trigger_here(self, wanted: str | Mapping[str, Any]) -> str | int:
        """The trigger that the sensor means: a number, or a type by its name here. Types have small
        letters and no blanks; an import gives the pack a name that Python can import."""
        if not isinstance(wanted, str):
            return int(wanted["id"])
        if wanted in self._ids:
            return self._ids[wanted]
        pack, _, name = wanted.lower().partition(".")
        own = str(self._channel.configuration.get("sensor", "")).partition(".")[0]
        pack = own if re.sub(r"\W", "_", pack) == own else pack
        return f"{pack}.{name.replace(' ', '_')}"

    def setup(self) -> None:
        self.inner.setup()
        self._channel.on_change = self._follow  # first: a change between the two would be missed
        self._follow(self._channel.configuration)

    def run(self) -> None:
        if not hasattr(self.inner, "poll"):
            # it may wait for something for hours, and cannot say that it lives
            threading.Thread(target=self._say_alive, daemon=True).start()
            self.inner.run()
            return
        while True:
            self.inner.poll()
            self.wait(self.inner.get_poll_interval())

    def cleanup(self) -> None:
        self.inner.cleanup()

    def _say_alive(self) -> None:
        while not self._channel.stopping.is_set():
            self.alive()
            time.sleep(ALIVE_SECONDS)

    def _follow(self, configuration: dict[str, Any]) -> None:
        """Tell it which triggers rules wait for, as they come and go."""
        with self._lock:
            now = {each["id"]: _of_st2(each) for each in configuration.get("triggers") or []}
            self._ids.update({each["ref"]: id for id, each in now.items() if each["parameters"]})
            for id in now.keys() - self._known.keys():
                self.inner.add_trigger(now[id])
            for id in self._known.keys() - now.keys():
                self.inner.remove_trigger(self._known[id])
            self._known = now


def _of_st2(trigger: Mapping[str, Any]) -> dict[str, Any]:
    """A trigger as `add_trigger` gets it. One with parameters has a `ref` of its own, as several of
    its type may be watched at once."""
    kind, id, parameters = trigger["type"], trigger["id"], trigger["parameters"]
    pack, _, name = kind.partition(".")
    return {
        "id": id,
        "ref": f"{kind}:{id}" if parameters else kind,
        "type": kind,
        "pack": pack,
        "name": name,
        "parameters": parameters,
    }
