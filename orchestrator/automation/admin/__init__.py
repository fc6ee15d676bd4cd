"""The admin of rules, events, enforcements and triggers."""

from orchestrator.automation.admin import enforcements, events, rules, triggers

__all__ = ["enforcements", "events", "rules", "triggers"]
