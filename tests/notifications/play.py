"""Notifications, and what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.core import news
from orchestrator.core.authority import Place
from orchestrator.core.demand import Demand
from orchestrator.core.frame import PACKS
from orchestrator.core.news import News
from orchestrator.notifications import waking
from orchestrator.notifications.notification import Notification
from tests.factories import NOW

STREAMS = "orchestrator.notifications.waking.tell"


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


def demand_of_streams() -> Demand:
    """What says in this process whether somebody listens."""
    (found,) = [each for each, send in news._listeners() if send.path == STREAMS]
    return found


@contextmanager
def somebody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[News]]:
    """What is told, in place of a broker, while somebody listens."""
    told: list[News] = []
    monkeypatch.setattr(demand_of_streams(), "exists", True)
    monkeypatch.setattr(waking, "tell", told.append)
    yield told
    monkeypatch.setattr(demand_of_streams(), "exists", False)
