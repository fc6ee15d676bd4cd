"""What `MUSTER_HEALTH_CHECKS` may say, and what each of it finds."""

from __future__ import annotations

import dataclasses
from typing import Any

import psutil
import pytest
from django.core.checks import run_checks

from orchestrator.core import health_checks


@pytest.fixture
def configured(settings: Any) -> Any:
    def configure(text: str) -> dict[str, health_checks.Check]:
        settings.MUSTER = dataclasses.replace(settings.MUSTER, health_checks=text)
        return health_checks.configured()

    return configure


def passes() -> bool:
    return True


NOT_CALLABLE = 1


def test_none_is_allowed(configured: Any) -> None:
    assert configured("") == {}


def test_enough_and_too_little(configured: Any) -> None:
    for text, total in (("disk_free", 10**9), ("memory_free", psutil.virtual_memory().total)):
        assert configured(f"{text}=1KB")[text]() is None
        assert configured(f"{text}=0.001%")[text]() is None
        assert "free, expected 100 %" in configured(f"{text}=100%")[text]()
        assert "MB free, expected" in configured(f"{text}={total}GB")[text]()


def test_callables_of_ones_own(configured: Any) -> None:
    checks = configured(f" disk_free=1MB , {__name__}.passes")
    assert list(checks) == ["disk_free", f"{__name__}.passes"]
    assert checks[f"{__name__}.passes"]() is True


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("disk_free", "expected 100MB, 2GB or 5%"),
        ("disk_free=100", "expected 100MB, 2GB or 5%"),
        ("disk_fre=1MB", "expected disk_free=SIZE"),
        ("no.such_module.check", "no.such_module"),
        (f"{__name__}.nothing_here", "nothing_here"),
        (f"{__name__}.NOT_CALLABLE", "cannot be called"),
    ],
)
def test_what_is_no_check_is_told_before_the_start(configured: Any, text: str, told: str) -> None:
    with pytest.raises(health_checks.WrongHealthCheck, match=told):
        configured(text)
    assert "muster.E003" in [str(found.id) for found in run_checks()]
