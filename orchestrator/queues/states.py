"""The states of a queue, and their colours."""

from __future__ import annotations

from orchestrator.core import words

KINDS = words.kinds(success="open", warning="paused closed")
