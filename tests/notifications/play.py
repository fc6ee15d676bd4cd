"""Notifications, and what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.core import news
from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS
from orchestrator.core.news import News
from orchestrator.notifications import waking
from orchestrator.notifications.notification import Notification
from tests.factories import NOW


def notification(type: str = "execution.running", **values: Any) -> Notification:
    known: dict[str, Any] = {
        "entity": type.partition(".")[0],
        "id": "1",
        "place": Place(PACKS, values.pop("pack", "shop")),
        "permission": "executions.read",
        "owner": "ada",
        "state": type.partition(".")[2],
        "at": NOW,
    }
    return Notification(type=type, **{**known, **values})


@contextmanager
def somebody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[News]]:
    """What is told, in place of a broker, while somebody listens."""
    told: list[News] = []
    monkeypatch.setattr(news._demand, "exists", True)
    monkeypatch.setattr(waking, "tell", told.append)
    yield told
    monkeypatch.setattr(news._demand, "exists", False)
