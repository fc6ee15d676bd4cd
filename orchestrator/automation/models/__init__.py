"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.automation.models.enforcements import Enforcement, Suppression
from orchestrator.automation.models.events import Event
from orchestrator.automation.models.marks import Revision, Watermark
from orchestrator.automation.models.rules import Rule, RuleRevision
from orchestrator.automation.models.sensors import (
    Assignment,
    AssignmentEvent,
    Sensor,
    SensorLog,
    SensorService,
)
from orchestrator.automation.models.triggers import Timer, Trigger, TriggerType
from orchestrator.automation.models.webhooks import DeliveryCount, Webhook

__all__ = [
    "Assignment",
    "AssignmentEvent",
    "DeliveryCount",
    "Enforcement",
    "Event",
    "Revision",
    "Rule",
    "RuleRevision",
    "Sensor",
    "SensorLog",
    "SensorService",
    "Suppression",
    "Timer",
    "Trigger",
    "TriggerType",
    "Watermark",
    "Webhook",
]
