"""Identities, keys, tokens, users and the audit in the admin."""

from orchestrator.access.admin import audit, identities, keys, tokens, users

__all__ = ["audit", "identities", "keys", "tokens", "users"]
