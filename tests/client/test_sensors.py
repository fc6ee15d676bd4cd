"""Sensors in Python: what the service says reaches them, and those of StackStorm are called as
there."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from django.conf import settings

from muster_client import st2, st2_sensors
from muster_client.sensors import Channel
from muster_client.st2_sensors import PollingSensor, Shim

LINE = "linux.file_watch.line"


class Service:
    """Both ends of a sensor's pipes."""

    def __init__(self, **configuration: Any) -> None:
        self._read, write = os.pipe()
        self.configuration = {"sensor": "linux.watch", "triggers": [], "cursor": {}}
        self.channel = Channel(io.BytesIO(), write)
        self.channel.configuration = self.configuration | configuration

    def close(self) -> None:
        os.close(self._read)
        os.close(self.channel.outgoing)

    @property
    def said(self) -> list[Any]:
        """What the sensor has written since this was asked."""
        os.set_blocking(self._read, False)
        try:
            return [json.loads(line) for line in os.read(self._read, 1_000_000).splitlines()]
        except BlockingIOError:
            return []

    @property
    def triggers(self) -> list[Any]:
        return [line["event"]["trigger"] for line in self.said]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


class Watch(PollingSensor):
    """As st2's own sensor of files: it dispatches by the `ref` that it was given."""

    def __init__(self, sensor_service: Any, config: Any = None) -> None:
        super().__init__(sensor_service, config)
        self.refs: dict[str, str] = {}

    def add_trigger(self, trigger: dict[str, Any]) -> None:
        self.refs[trigger["parameters"].get("path", "")] = trigger["ref"]


def trigger(id: int, **parameters: Any) -> dict[str, Any]:
    return {"id": id, "type": LINE, "parameters": parameters}


def test_events_with_the_same_trace_tag_are_different_events(service: Service) -> None:
    shim = Shim(Watch, service.channel)
    for line in ("a", "b"):
        shim.inner.sensor_service.dispatch(LINE, {"line": line}, trace_tag="one request")
    assert [line["event"] for line in service.said] == [
        {"trigger": LINE, "payload": {"line": line}} for line in ("a", "b")
    ]


def test_event_goes_to_the_trigger_with_the_parameters_that_the_sensor_was_given(
    service: Service,
) -> None:
    watched = [trigger(7, path="/a"), trigger(8, path="/b"), trigger(9)]
    service.channel.configuration["triggers"] = watched
    shim = Shim(Watch, service.channel)
    shim.setup()
    refs = shim.inner.refs
    assert len(set(refs.values())) == 3
    for ref in (refs["/b"], refs["/a"], refs[""]):
        shim.inner.sensor_service.dispatch(trigger=ref, payload={})
    assert service.triggers == [8, 7, LINE]


def test_trigger_that_was_removed_is_one_still_for_what_is_on_its_way(service: Service) -> None:
    service.channel.configuration["triggers"] = [trigger(7, path="/a")]
    shim = Shim(Watch, service.channel)
    shim.setup()
    assert service.channel.on_change is not None
    service.channel.on_change({"triggers": []})
    shim.inner.sensor_service.dispatch(shim.inner.refs["/a"], {})
    assert service.triggers == [7]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Disk-Watch.MyEvent", "disk_watch.myevent"),
        ("disk_watch.my event", "disk_watch.my_event"),
        ("other-pack.event", "other-pack.event"),
    ],
)
def test_names_of_triggers_are_those_that_the_import_gave_them(
    service: Service, theirs: str, ours: str
) -> None:
    service.channel.configuration["sensor"] = "disk_watch.disk"
    Shim(Watch, service.channel).inner.sensor_service.dispatch(theirs, {})
    assert service.triggers == [ours]


class Anything(PollingSensor):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)

    def poll(self) -> None: ...


class Slow(PollingSensor):
    def __init__(
        self, sensor_service: Any, config: Any = None, poll_interval: float = 300.0
    ) -> None:
        super().__init__(sensor_service, config, poll_interval)

    def poll(self) -> None: ...


def test_constructor_with_any_arguments_gets_the_configuration(service: Service) -> None:
    service.channel.configuration["parameters"] = {"host": "a", "poll_interval": 7}
    inner = Shim(Anything, service.channel).inner
    assert inner.config["host"] == "a"
    assert inner.get_poll_interval() == 7


def test_class_keeps_its_own_interval_where_its_file_has_none(service: Service) -> None:
    assert Shim(Slow, service.channel).inner.get_poll_interval() == 300
    service.channel.configuration["parameters"] = {"poll_interval": 7}
    assert Shim(Slow, service.channel).inner.get_poll_interval() == 7


def test_values_are_kept_in_the_cursor(service: Service) -> None:
    ours = Shim(Watch, service.channel).inner.sensor_service
    ours.set_value("last", 0)
    assert [each["cursor"] for each in service.said] == [{st2_sensors.VALUES: {"last": 0}}]
    assert ours.get_value("last") == 0
    assert [each.name for each in ours.list_values(prefix="l")] == ["last"]
    assert ours.delete_value("last") is True
    assert ours.delete_value("last") is False


@pytest.mark.parametrize(
    "call",
    [
        lambda ours: ours.set_value("token", "x", encrypt=True),
        lambda ours: ours.get_value("token", decrypt=True),
        lambda ours: ours.get_value("token", local=False, decrypt=True),
        lambda ours: ours.set_value("token", "x", local=False),
        lambda ours: ours.delete_value("token", local=False),
        lambda ours: ours.list_values(local=False),
    ],
)
def test_what_the_shim_has_not_is_refused_and_nothing_is_stored(
    service: Service, call: Any
) -> None:
    ours = Shim(Watch, service.channel).inner.sensor_service
    with pytest.raises(st2.NotInMuster):
        call(ours)
    assert service.said == []


# --- in a process of its own ---------------------------------------------------------------------


def run(pack: Path, text: str, said: list[Any], **files: str) -> subprocess.CompletedProcess[str]:
    """Run a sensor of StackStorm, and say these lines to it."""
    for name, content in {"sensors/watch.py": text, **files}.items():
        file = pack / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(content))
    runner = settings.BASE_DIR / "workers" / "sensors" / "python_sensor.py"
    return subprocess.run(
        [sys.executable, str(runner), f"{pack.name}.sensors.watch:Watch", str(pack.parent)],
        input="".join(json.dumps(line) + "\n" for line in said),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_sensor_whose_triggers_cannot_be_changed_ends_with_the_reason(tmp_path: Path) -> None:
    text = """
        import time
        from st2reactor.sensor.base import Sensor

        class Watch(Sensor):
            def run(self):
                time.sleep(20)

            def add_trigger(self, trigger):
                raise KeyError("no path")
        """
    configuration: dict[str, Any] = {"sensor": "linux.watch", "triggers": [], "cursor": {}}
    said = [
        {"configure": configuration},
        {"configure": configuration | {"triggers": [trigger(7)]}},
    ]
    done = run(tmp_path / "linux", text, said)
    assert done.returncode == 1
    assert "no path" in done.stderr


def test_sensor_finds_what_stands_beside_it_and_in_the_lib_of_its_pack(tmp_path: Path) -> None:
    text = """
        import beside_it, of_the_pack
        from st2reactor.sensor.base import Sensor

        class Watch(Sensor):
            def run(self):
                print("found", beside_it.X + of_the_pack.X)
        """
    modules = {"sensors/beside_it.py": "X = 1\n", "lib/of_the_pack.py": "X = 2\n"}
    done = run(tmp_path / "linux", text, [{"configure": {"sensor": "linux.watch"}}], **modules)
    assert "found 3\n" in done.stderr
