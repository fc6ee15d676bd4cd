"""The states of tasks and steps, and every way from one to another."""

from orchestrator.workflows.states.steps import STEPS, StepState
from orchestrator.workflows.states.tasks import TASKS, TaskState

__all__ = ["STEPS", "TASKS", "StepState", "TaskState"]
