"""The admin of rules, events, enforcements, triggers, webhooks and sensors."""

from orchestrator.automation.admin import enforcements, events, rules, sensors, triggers, webhooks

__all__ = ["enforcements", "events", "rules", "sensors", "triggers", "webhooks"]
