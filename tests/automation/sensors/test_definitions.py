"""Files of sensors: every problem has its place; what is valid is installed with its pack."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from orchestrator.automation.models import Sensor
from orchestrator.core import packs
from orchestrator.core.packs import InvalidPack
from tests.automation.sensors.making import row_of
from tests.factories import NOW

pytestmark = pytest.mark.django_db

VALID = """
name: watch
runtime: shell
entry_point: [tail, -f, /dev/null]
trigger_types: [order]
"""


def make_pack(folder: Path, sensor: str) -> Path:
    for name, file, text in (
        (".", "pack.yaml", "name: shop\nversion: '1'\n"),
        ("triggers", "order.yaml", "name: order\n"),
        ("sensors", "watch.yaml", sensor),
    ):
        (folder / name).mkdir(exist_ok=True, parents=True)
        (folder / name / file).write_text(text)
    return folder


def problems(folder: Path, sensor: str) -> str:
    with pytest.raises(InvalidPack) as refused:
        packs.load(make_pack(folder / "shop", sensor))
    return str(refused.value)


def test_sensor_of_a_pack_is_installed_and_retired_with_it(tmp_path: Path) -> None:
    folder = make_pack(tmp_path / "shop", VALID)
    packs.install(packs.load(folder), now=NOW)
    assert Sensor.objects.get().trigger_types == ["shop.order"]
    assert row_of("shop.watch").state == "vacant"
    (folder / "sensors" / "watch.yaml").unlink()
    packs.install(packs.load(folder), now=NOW)
    assert Sensor.objects.get().retired_at == NOW
    assert row_of("shop.watch").state == "unwanted"


def test_example_is_a_valid_pack() -> None:
    definition = packs.load(settings.BASE_DIR / "packs" / "examples")
    assert [each["name"] for each in definition.contents["sensors"]] == ["counter"]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("runtime: shell", "runtime: http", "runtime"),
        ("trigger_types: [order]", "trigger_types: []", "trigger_types"),
        (
            "trigger_types: [order]",
            "trigger_types: [ordr]",
            "is called 'shop.ordr'",
        ),
        ("trigger_types: [order]", "trigger_types: [core.cron]", "only Muster itself"),
        ("name: watch", "name: watch\nkeys: [stripe]", "keys"),
        ("name: watch", "name: watch\nlimits: {memory: 1}", "limits.memory"),
        ("name: watch", "name: watch\nalive_seconds: 0", "alive_seconds"),
        ("name: watch", "name: watch\nenvironment: {}", "unknown key"),
        (
            "runtime: shell\nentry_point: [tail, -f, /dev/null]",
            "runtime: python\nentry_point: shop.none:Watch",
            "entry_point",
        ),
        (
            "runtime: shell\nentry_point: [tail, -f, /dev/null]",
            "runtime: python\nentry_point: Watch",
            "expected package.module:class, found 'Watch'",
        ),
    ],
)
def test_problem_of_a_file_is_told_with_its_place(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    told = problems(tmp_path, VALID.replace(before, after))
    assert says in told
    assert "watch.yaml" in told
