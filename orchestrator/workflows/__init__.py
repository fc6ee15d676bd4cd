"""The life of a task: what is stuck is found."""

from orchestrator.workflows.staleness import Detected, detect_stale

__all__ = ["Detected", "detect_stale"]
