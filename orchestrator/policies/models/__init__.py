"""Policies, and what they count."""

from orchestrator.policies.models.buckets import PolicyBucket, PolicySlot, PolicyWait, free_ended
from orchestrator.policies.models.policies import Policy

__all__ = ["Policy", "PolicyBucket", "PolicySlot", "PolicyWait", "free_ended"]
