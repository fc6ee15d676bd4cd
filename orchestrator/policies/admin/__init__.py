"""The admin of policies."""

from orchestrator.policies.admin import policies

__all__ = ["policies"]
