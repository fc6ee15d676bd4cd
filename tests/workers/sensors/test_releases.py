"""Sensors run from the release of their pack, and go on where they were when it is another."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from orchestrator.automation import dependents, trigger_types
from orchestrator.automation.models import Event, Sensor
from orchestrator.automation.sensors import catalogue
from orchestrator.core import clock, packs
from orchestrator.core.models import Pack, ReleaseChunk
from orchestrator.core.packs import fetching
from tests.automation.sensors.making import row_of
from tests.core.packs.folder import Folder
from tests.core.packs.releasing import install, release_of
from workers.sensors import launching
from workers.sensors.launching import CannotStart
from workers.sensors.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures("database")

WATCH = f"""#!{sys.executable}
import json, sys, time
number = json.loads(sys.stdin.readline())["configure"]["cursor"].get("last", 0)
while True:
    number += 1
    payload = {{"number": number, "version": VERSION}}
    event = {{"trigger": "shop.order", "payload": payload, "key": str(number)}}
    print(json.dumps({{"n": number, "event": event, "cursor": {{"last": number}}}}), flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Iterator[Path]:
    home = tmp_path / "releases"
    settings.MUSTER = replace(settings.MUSTER, releases_dir=str(home))
    fetching._verified.clear()
    yield home
    for path in (home, *home.rglob("*")):  # pytest removes it
        if path.is_dir():
            path.chmod(0o700)


@pytest.fixture
def shop(database: str, tmp_path: Path, home: Path) -> Folder:
    trigger_types.install_built_in(now=clock.now())
    folder = Folder(tmp_path / "shop")
    folder.write("pack.yaml", 'name: shop\nversion: "1.0"\n')
    folder.write("triggers/order.yaml", "name: order\n")
    sensor = {"name": "watch", "runtime": "shell", "entry_point": ["./watch.py"],
              "trigger_types": ["order"]}  # fmt: skip
    folder.write("sensors/watch.yaml", str(sensor))
    code(folder, 1)
    return folder


def code(folder: Folder, version: int) -> None:
    folder.write("watch.py", WATCH.replace("VERSION", str(version)))
    (folder.path / "watch.py").chmod(0o755)


def sensor_of(report: packs.InstallReport) -> Sensor:
    """The sensor of a pack that came through the API: nothing is known of its folder."""
    Pack.objects.filter(name=report.pack).update(path="")
    return row_of().sensor


@pytest.fixture
def service() -> Iterator[Supervisor]:
    service = Supervisor("s1", {})
    yield service
    service._end_all()
    connections.close_all()


def look_until(service: Supervisor, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        service.look()
        time.sleep(0.05)


def counted() -> list[tuple[int, int]]:
    events = Event.objects.filter(type_ref="shop.order").order_by("pk")
    return [(each.payload["number"], each.payload["version"]) for each in events]


def test_no_event_is_lost_or_doubled_while_the_pack_is_upgraded(
    shop: Folder, service: Supervisor
) -> None:
    sensor_of(install(shop.path, now=clock.now()))
    look_until(service, lambda: len(counted()) > 20)
    code(shop, 2)
    report = install(shop.path, now=clock.now())
    assert report.updated == ("shop.watch",)
    assert sensor_of(report).release == release_of(report)
    look_until(service, lambda: any(version == 2 for _, version in counted()))
    look_until(service, lambda: counted()[-20][1] == 2)
    numbers, versions = zip(*counted(), strict=True)
    assert numbers == tuple(range(1, len(numbers) + 1))
    assert sorted(versions) == list(versions)
    assert row_of().cursor["last"] >= len(numbers)
    assert row_of().restarts == 0


def test_the_same_content_restarts_nothing(shop: Folder) -> None:
    install(shop.path, now=clock.now())
    assert install(shop.path, now=clock.now()).updated == ()


def test_it_is_started_in_the_release_wherever_the_folder_is(
    shop: Folder, home: Path, tmp_path: Path
) -> None:
    sensor = sensor_of(report := install(shop.path, now=clock.now()))
    assert launching.fits(sensor, {})
    launch = launching.prepare(sensor, "shop.watch:1", str(tmp_path))
    assert launch.argv == [str(home / report.release / "shop" / "watch.py")]
    assert launch.environment["PYTHONDONTWRITEBYTECODE"] == "1"


def test_one_whose_content_is_damaged_is_not_started(shop: Folder, tmp_path: Path) -> None:
    sensor = sensor_of(install(shop.path, now=clock.now()))
    ReleaseChunk.objects.all().delete()
    with pytest.raises(CannotStart, match="is refused"):
        launching.prepare(sensor, "shop.watch:1", str(tmp_path))


def test_a_linked_pack_is_run_where_its_folder_is(shop: Folder, tmp_path: Path) -> None:
    packs.install(packs.load(shop.path), now=clock.now())
    sensor = row_of().sensor
    assert launching.fits(sensor, {})
    launch = launching.prepare(sensor, "shop.watch:1", str(tmp_path))
    assert launch.argv == [str(shop.path / "watch.py")]
    for path in ("", str(tmp_path / "nowhere")):
        Pack.objects.filter(name="shop").update(path=path)
        assert not launching.fits(row_of().sensor, {})


def test_its_release_is_needed_as_long_as_it_is_in_its_pack(shop: Folder) -> None:
    release = release_of(install(shop.path, now=clock.now()))
    assert dependents.needed_releases() == {release.pk}
    catalogue.retire_all("shop", now=clock.now(), actor="me")
    assert dependents.needed_releases() == set()


def test_a_pack_that_is_drained_ends_it_and_an_operators_word_is_kept(shop: Folder) -> None:
    install(shop.path, now=clock.now())
    catalogue.enable("shop.watch", now=clock.now(), actor="me")
    dependents.pause("shop", now=clock.now())
    row = row_of()
    assert (row.state, row.sensor.retired_at is None) == ("unwanted", False)
    assert install(shop.path, now=clock.now()).updated == ("shop.watch",)
    row = row_of()
    assert (row.state, row.sensor.retired_at) == ("vacant", None)
    assert row.sensor.enabled_override is True
