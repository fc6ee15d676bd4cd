"""One life of a sensor, with a real process: its lines are recorded once, its end is noted."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.db import DataError, connections

from orchestrator.access import keyring
from orchestrator.access.keys import storing
from orchestrator.access.keys.references import Reference
from orchestrator.access.keys.storing import NewKey
from orchestrator.automation import kept_keys, trigger_types
from orchestrator.automation.models import Event
from orchestrator.automation.sensors import assignments, catalogue, logs, reports
from orchestrator.core import clock, packs
from tests.automation import play
from tests.automation.sensors import making
from tests.automation.sensors.making import row_of
from tests.principals import ROOT
from tests.waiting import wait_until
from workers import processes
from workers.sensors import launching, running
from workers.sensors.lives import Order
from workers.sensors.running import SensorLife

pytestmark = pytest.mark.usefixtures("database")

HEAD = """
import json, os, sys, time
configuration = json.loads(sys.stdin.readline())["configure"]
def say(**line):
    print(json.dumps(line), flush=True)
def count(number, n=None):
    event = {"trigger": "shop.order", "payload": {"number": number}, "key": str(number)}
    say(n=n or number, event=event, cursor={"last": number})
"""


class Play:
    """A pack with a sensor, which a service has taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shop"
        (self.folder / "sensors").mkdir(parents=True)
        self.lives: list[SensorLife] = []

    def start(self, script: str, **values: Any) -> SensorLife:
        """Start a sensor with this script, after a helper's few lines."""
        (self.folder / "watch.py").write_text(HEAD + textwrap.dedent(script))
        entry_point = [sys.executable, "-u", str(self.folder / "watch.py")]
        return self.start_command(entry_point, **values)

    def start_command(self, entry_point: Any, **values: Any) -> SensorLife:
        now = clock.now()
        making.make_sensor(now=now, path=self.folder, entry_point=entry_point, **values)
        [row] = making.take(making.make_service(now=now), now=now)
        life = SensorLife(row, actor=making.ACTOR)
        self.lives.append(life)
        life.start()
        return life

    def end(self) -> None:
        for life in self.lives:
            life.tell(Order.KILL)
            life.join(20)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Play]:
    playing = Play(tmp_path)
    yield playing
    playing.end()
    connections.close_all()


def numbers() -> list[int]:
    events = Event.objects.filter(type_ref=play.ORDER).order_by("pk")
    return [event.payload["number"] for event in events]


def until(look: Callable[[], Any]) -> None:
    wait_until(look, seconds=120)  # at once on an idle machine


def processes_of(life: SensorLife) -> list[psutil.Process]:
    mark = f"{making.WATCH}:{life.lease.fence}"

    def is_of_it(process: psutil.Process) -> bool:
        try:
            return process.environ().get(processes.SENSOR) == mark
        except psutil.Error:
            return False

    return [each for each in psutil.process_iter() if is_of_it(each)]


def test_lines_are_recorded_with_the_cursor_and_acknowledged(shop: Play) -> None:
    shop.start(
        """
        for number in range(1, 351):
            count(number)
        acknowledged = 0
        while acknowledged < 350:
            acknowledged = json.loads(sys.stdin.readline())["ack"]
        count(1000)
        time.sleep(60)
        """
    )
    until(lambda: len(numbers()) == 351)
    assert numbers() == [*range(1, 351), 1000]
    until(lambda: row_of().state == "running")
    assert row_of().cursor == {"last": 1000}


def test_sensor_is_given_its_cursor_its_parameters_and_the_triggers_that_rules_wait_for(
    shop: Play,
) -> None:
    play.make_rule()
    shop.start(
        """
        sys.stderr.write(json.dumps(configuration) + "\\n")
        time.sleep(60)
        """,
        options={"parameters": {"until": 3}},
    )
    until(lambda: logs.read(catalogue.find(making.WATCH), lines=1))
    [line] = logs.read(catalogue.find(making.WATCH), lines=1)
    told = json.loads(line)
    assert told["cursor"] == {}
    assert told["parameters"] == {"until": 3}
    assert [each["type"] for each in told["triggers"]] == [play.ORDER]


def test_sensor_is_told_when_rules_change(shop: Play) -> None:
    life = shop.start(
        """
        assert not configuration["triggers"]
        said = json.loads(sys.stdin.readline())
        count(len(said["configure"]["triggers"]))
        time.sleep(60)
        """
    )
    until(lambda: life.configuration)
    play.make_rule()
    life.reconfigure()
    until(lambda: numbers() == [1])


def test_sensor_knows_nothing_of_the_service(shop: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL_OF_TEST", "postgresql://secret")
    shop.start(
        """
        sys.stderr.write(" ".join(sorted(os.environ)) + "\\n")
        time.sleep(60)
        """
    )
    until(lambda: logs.read(catalogue.find(making.WATCH), lines=1))
    [line] = logs.read(catalogue.find(making.WATCH), lines=1)
    known = {"HOME", "LANG", "LC_CTYPE", "MSTR_PACK_PATH", "MSTR_SENSOR", "MSTR_WORKER_TOKEN"}
    assert set(line.split()) <= known | {"PATH", "PYTHONUNBUFFERED", "TMPDIR"}


def test_line_that_is_none_is_noted_and_the_others_are_recorded(shop: Play) -> None:
    shop.start(
        """
        print("hello", flush=True)
        say(n=1, event={"trigger": "core.cron"})
        count(2)
        time.sleep(60)
        """
    )
    until(lambda: numbers() == [2])
    sensor = catalogue.find(making.WATCH)
    until(lambda: len(logs.read(sensor, lines=9)) == 2)
    assert {line.split(":")[1] for line in logs.read(sensor, lines=9)} == {" refused"}
    assert row_of().refused == 2


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("print('x' * 2_000_000, flush=True); time.sleep(60)", "a line of more than"),
        ("x = b'x' * 400_000_000; time.sleep(60)", "limit of memory"),
    ],
)
def test_sensor_that_ends_starts_again_after_a_while(shop: Play, script: str, problem: str) -> None:
    life = shop.start(script, options={"limits": {"memory_mb": 200}})
    until(lambda: row_of().state == "backing_off")
    assert problem in row_of().problem
    life.join(20)
    until(lambda: not processes_of(life))


def test_what_a_sensor_wrote_before_its_end_is_recorded(shop: Play) -> None:
    shop.start("for number in range(1, 501): count(number)")
    until(lambda: row_of().state == "backing_off")
    assert numbers() == list(range(1, 501))


def test_program_that_does_not_exist_is_a_failure_that_says_so(shop: Play) -> None:
    shop.start_command(["no-such-program"])
    until(lambda: row_of().state == "backing_off")
    assert "could not be executed" in row_of().problem


def test_time_of_which_no_database_knows_is_refused_and_the_others_are_recorded(
    shop: Play,
) -> None:
    shop.start(
        """
        say(n=1, event={"trigger": "shop.order", "payload": {"number": 1},
                        "occurred_at": "9999-12-31T23:59:59-05:00"})
        say(n=2, event={"trigger": "shop.order", "payload": {"number": 2},
                        "occurred_at": "2026-01-01T00:00:00-23:00"})
        time.sleep(60)
        """
    )
    until(lambda: numbers() == [2])
    assert row_of().refused == 1


def test_cursor_of_the_size_that_is_kept_fits_into_a_line(shop: Play) -> None:
    shop.start("say(n=1, cursor={'text': 'x' * 1_000_000}); time.sleep(60)")
    until(lambda: row_of().cursor)
    assert len(row_of().cursor["text"]) == 1_000_000


def test_what_the_database_refuses_for_good_is_a_failure(
    shop: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DataError("no such time")

    monkeypatch.setattr(reports, "record_accepted", refuse)
    shop.start("count(1); time.sleep(60)")
    until(lambda: row_of().state == "backing_off")
    assert row_of().problem == "the database refuses what it reports"


def test_preparation_is_no_life(shop: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take ten minutes, and then the pause would be the shortest each time."""

    def prepare(*_: Any) -> None:
        raise launching.CannotStart("no packages")

    monkeypatch.setattr(launching, "prepare", prepare)
    life = shop.start("time.sleep(60)")
    life.join(20)
    assert life.lived_seconds == 0
    assert row_of().problem == "no packages"


def test_sensor_that_falls_silent_has_lived_until_its_last_line(shop: Play) -> None:
    life = shop.start("time.sleep(60)", options={"alive_seconds": 0.2})
    life.join(20)
    assert "silent" in row_of().problem
    assert life.lived_seconds < 0.2


def test_sensor_is_no_process_where_actions_need_more(shop: Play, settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, least_isolation="container")
    shop.start("count(1)").join(20)
    assert "MUSTER_LEAST_ISOLATION is 'container'" in row_of().problem
    assert numbers() == []


def test_key_that_is_rotated_reaches_the_sensor_and_one_that_is_revoked_ends_it(
    shop: Play, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "KEYS_SECONDS", 0.1)
    monkeypatch.setattr(kept_keys, "KEPT_SECONDS", 0.0)
    settings.DATA_DIR = shop.folder
    keyring.add()
    reference = Reference("installation", "", "feed")
    new = NewKey(reference=reference, value="first-secret-value", packs=["shop"])
    storing.create(new, by=ROOT, now=clock.now())
    life = shop.start(
        """
        def tell(configuration):
            print(configuration["keys"]["installation/feed"], file=sys.stderr, flush=True)
            count(len(configuration["keys"]["installation/feed"]))
        tell(configuration)
        for line in sys.stdin:
            if "configure" in line:
                tell(json.loads(line)["configure"])
        """,
        keys=["installation/feed"],
        options={"alive_seconds": 60},
    )
    until(lambda: numbers() == [18])
    storing.rotate(reference, value="the-second-secret-value", by=ROOT, now=clock.now())
    until(lambda: numbers() == [18, 23])
    storing.revoke(reference, by=ROOT, now=clock.now())
    until(lambda: row_of().state == "backing_off")
    assert "revoked" in row_of().problem
    life.join(20)
    text = " ".join(logs.read(catalogue.find(making.WATCH), lines=99))
    assert "secret-value" not in text


@pytest.mark.takes_time
def test_silent_sensor_is_ended(shop: Play) -> None:
    shop.start("time.sleep(60)", options={"alive_seconds": 1})
    until(lambda: row_of().state == "backing_off")
    assert "silent for 1 s" in row_of().problem


def test_sensor_whose_lease_is_lost_is_ended_and_its_lines_are_refused(shop: Play) -> None:
    life = shop.start("count(1); sys.stdin.readline(); time.sleep(2); count(2); time.sleep(60)")
    until(lambda: numbers() == [1])
    until(lambda: row_of().state == "running")
    assignments.give_up([life.lease], now=clock.now(), actor="me")
    until(lambda: not life.is_alive())
    assert numbers() == [1]
    assert row_of().state == "vacant"
    until(lambda: not processes_of(life))


def test_last_lines_of_a_sensor_are_recorded_when_its_service_stops(shop: Play) -> None:
    life = shop.start(
        """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: (count(2), os._exit(0)))
        count(1)
        time.sleep(60)
        """
    )
    until(lambda: numbers() == [1])
    life.tell(Order.STOP)
    life.join(20)
    assert numbers() == [1, 2]
    assert row_of().state in ("starting", "running"), "the supervisor gives the lease up"


def test_all_that_a_sensor_started_ends_with_it(shop: Play) -> None:
    life = shop.start(
        """
        import subprocess
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        count(1)
        time.sleep(60)
        """
    )
    until(lambda: numbers() == [1])
    assert len(processes_of(life)) >= 2
    life.tell(Order.KILL)
    life.join(20)
    until(lambda: not processes_of(life))


def test_sensor_that_reads_nothing_does_not_hold_up_its_lines(shop: Play) -> None:
    shop.start("for number in range(1, 3001): count(number)\ntime.sleep(60)")
    until(lambda: len(numbers()) == 3_000)


PYTHON = """
from muster_client.sensors import Sensor

class Watch(Sensor):
    every_seconds = 0.2

    def poll(self):
        last = self.cursor.get("last", 0)
        print("polled", last)
        if last < 5:
            self.send("shop.order", {"number": last + 1}, key=str(last + 1),
                      cursor={"last": last + 1})
"""

ST2 = """
from st2reactor.sensor.base import PollingSensor

class Watch(PollingSensor):
    def __init__(self, sensor_service, config=None, poll_interval=0.2):
        super().__init__(sensor_service=sensor_service, config=config, poll_interval=0.2)

    def setup(self):
        self._logger = self.sensor_service.get_logger(name=__name__)

    def poll(self):
        last = self.sensor_service.get_value("last") or 0
        self._logger.info("polled %s", last)
        if last < 5:
            payload = {"number": last + 1}
            self.sensor_service.dispatch(trigger="shop.order", payload=payload)
            self.sensor_service.set_value("last", last + 1)

    def cleanup(self): pass
    def add_trigger(self, trigger): self._logger.info("added %s", trigger["ref"])
    def update_trigger(self, trigger): pass
    def remove_trigger(self, trigger): pass
"""

PASSIVE = """
import time
from st2reactor.sensor.base import Sensor

class Watch(Sensor):
    def setup(self): self.number = 0
    def run(self):
        while True:
            self.number += 1
            if self.number <= 5:
                self._sensor_service.dispatch("shop.order", {"number": self.number})
            time.sleep(0.05)
    def cleanup(self): pass
    def add_trigger(self, trigger): pass
    def update_trigger(self, trigger): pass
    def remove_trigger(self, trigger): pass
"""


@pytest.mark.parametrize("source", [PYTHON, ST2, PASSIVE])
def test_python_sensors_ours_and_those_of_stackstorm_run(shop: Play, source: str) -> None:
    play.make_rule()
    (shop.folder / "watching.py").write_text(source)
    life = shop.start_command("shop.watching:Watch", runtime="python")
    until(lambda: numbers() == [1, 2, 3, 4, 5])
    if source is not PASSIVE:
        until(lambda: "polled" in " ".join(logs.read(catalogue.find(making.WATCH), lines=99)))
    began = time.monotonic()
    life.tell(Order.STOP)
    life.join(20)
    assert time.monotonic() - began < 3, "it ends when it is asked to"


def test_example_counts_and_goes_on_where_it_was(shop: Play) -> None:
    now = clock.now()
    for name in ("core", "examples"):
        packs.install(packs.load(settings.BASE_DIR / "packs" / name), now=now)
    trigger_types.install_built_in(now=now)
    catalogue.enable("examples.counter", now=now, actor="me")
    service = making.make_service(now=now)
    [row] = making.take(service, now=now)
    shop.lives.append(SensorLife(row, actor=making.ACTOR))
    shop.lives[0].start()
    until(lambda: row_of("examples.counter").cursor == {"next": 11})
    counted = Event.objects.filter(type_ref="examples.counted").order_by("pk")
    assert [event.payload["number"] for event in counted] == list(range(1, 11))
