"""The admin of queues."""

from orchestrator.queues.admin import queues

__all__ = ["queues"]
