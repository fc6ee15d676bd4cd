"""The admin of templates, tasks and steps."""

from orchestrator.workflows.admin import steps, task_templates, tasks

__all__ = ["steps", "task_templates", "tasks"]
