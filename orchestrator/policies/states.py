"""The states of a policy, and their colours."""

from __future__ import annotations

from orchestrator.core import words

KINDS = words.kinds(success="enabled", warning="disabled")
