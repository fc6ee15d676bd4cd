"""Fields, constraints and reads. Nothing here decides; the verbs do."""

from orchestrator.automation.models.enforcements import Enforcement, Suppression
from orchestrator.automation.models.events import Event
from orchestrator.automation.models.marks import Revision, Watermark
from orchestrator.automation.models.rules import Rule, RuleRevision
from orchestrator.automation.models.triggers import Timer, Trigger, TriggerType

__all__ = [
    "Enforcement",
    "Event",
    "Revision",
    "Rule",
    "RuleRevision",
    "Suppression",
    "Timer",
    "Trigger",
    "TriggerType",
    "Watermark",
]
