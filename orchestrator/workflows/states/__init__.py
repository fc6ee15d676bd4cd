"""The states of tasks and steps, and the transitions between them."""

from orchestrator.workflows.states.steps import STEPS, StepState
from orchestrator.workflows.states.tasks import TASKS, TaskState

__all__ = ["STEPS", "TASKS", "StepState", "TaskState"]
