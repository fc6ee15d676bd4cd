"""One notification: what a client is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from orchestrator.core.authority import Place
from orchestrator.core.frame import WORKERS


@dataclass(frozen=True)
class Notification:
    """Something changed. Who wants to know more reads the API, with rights of their own."""

    type: str
    """Such as `execution.running`."""
    entity: str
    id: str
    place: Place
    permission: str
    owner: str
    state: str
    at: datetime

    @property
    def pack(self) -> str:
        """The pack, or the namespace of templates; empty for what belongs to none."""
        return "" if self.place.about == WORKERS else self.place.name

    @cached_property
    def body(self) -> dict[str, Any]:
        """Its JSON but for `seq`, which each notifier counts for itself."""
        return {
            "type": self.type,
            "entity": self.entity,
            "id": self.id,
            "pack": self.pack or None,
            "owner": self.owner or None,
            "state": self.state or None,
            "at": self.at.isoformat(),
        }

    def as_json(self, seq: int) -> str:
        return json.dumps({"seq": seq, **self.body}, separators=(",", ":"))
