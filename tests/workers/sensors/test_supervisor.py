"""What a service runs follows what is its own, and no slow end keeps leases from being renewed."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation.sensors import assignments, catalogue
from orchestrator.core import clock
from tests.automation.sensors import making
from tests.automation.sensors.making import make_sensor, row_of
from workers.sensors import launching, supervisor
from workers.sensors.lives import Order
from workers.sensors.supervisor import Supervisor

pytestmark = pytest.mark.django_db


class Life:
    """The life of a sensor, which ends when the test says so."""

    has_process = True

    def __init__(self, row: Any, *, actor: str) -> None:
        self.lease = assignments.Lease(row.pk, row.fence, row.sensor)
        self.order, self.lives = Order.GO_ON, False

    def start(self) -> None:
        self.lives = True

    def is_alive(self) -> bool:
        return self.lives

    def tell(self, order: Order) -> None:
        self.order = order

    def reconfigure(self) -> None: ...


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    monkeypatch.setattr(supervisor, "SensorLife", Life)
    monkeypatch.setattr(launching, "fits", lambda *_: True)
    make_sensor(now=clock.now())
    service = Supervisor("s1", {})
    service.look()
    return service


def life_of(service: Supervisor) -> Any:
    return service.lives[row_of().pk]


@pytest.mark.parametrize(("verb", "state"), [("restart", "starting"), ("disable", "unwanted")])
def test_sensor_is_asked_to_end_and_leaves_when_it_has(
    service: Supervisor, verb: str, state: str
) -> None:
    before = life_of(service)
    getattr(catalogue, verb)(making.WATCH, now=clock.now(), actor="me")
    service.look()
    assert (before.order, row_of().state) == (Order.STOP, "ending")
    before.lives = False
    service.look()
    assert row_of().state == state
    if verb == "restart":
        assert life_of(service) is not before
        assert life_of(service).lives


def test_sensor_starts_again_only_when_its_process_has_ended(service: Supervisor) -> None:
    before = life_of(service)
    row = row_of()
    assignments.give_up([before.lease], now=clock.now(), actor="me")
    service.look()
    assert (before.order, row_of().state) == (Order.KILL, "vacant")
    assert life_of(service) is before
    before.lives = False
    service.look()
    assert (row_of().state, row_of().fence > row.fence) == ("starting", True)
