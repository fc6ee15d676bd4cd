"""Take deliveries of webhooks: each becomes an event, or is refused with a reason.

receiving.receive(delivery, path="github", came_from=origin, now=now)
"""

from orchestrator.automation.receiving.admission import admit
from orchestrator.automation.receiving.steps import CameFrom, Received, receive

__all__ = ["CameFrom", "Received", "admit", "receive"]
