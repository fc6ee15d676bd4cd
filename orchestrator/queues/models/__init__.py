"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.queues.models.gates import Gate
from orchestrator.queues.models.keepers import Keeper
from orchestrator.queues.models.queues import QueueEvent, WorkQueue
from orchestrator.queues.models.tickets import Ticket

__all__ = ["Gate", "Keeper", "QueueEvent", "Ticket", "WorkQueue"]
