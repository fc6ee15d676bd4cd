"""The tasks on the admin's first page."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Count
from django.urls import reverse

from orchestrator.core import authority, words
from orchestrator.core.admin.dashboard import Card
from orchestrator.core.authority import Principal
from orchestrator.workflows.models import Task
from orchestrator.workflows.states.tasks import OPEN, TaskState


def boxes(now: datetime, user: Principal) -> list[tuple[str, list[Card]]]:
    """Count the open tasks by state, of the states that there are; nothing without any. Exact: the
    partial index holds only these."""
    if not authority.may(user, "tasks.read"):
        return []
    rows = Task.objects.visible_to(user).open().order_by().values_list("state")
    counts = dict(rows.annotate(Count("pk")))
    cards = [_card(state, counts[state]) for state in TaskState if state in OPEN & counts.keys()]
    return [("Open tasks", cards)] if cards else []


def _card(state: TaskState, number: int) -> Card:
    url = f"{reverse('admin:workflows_task_changelist')}?state={state}"
    return Card(name=state, kind=words.kind_of(state), count=number, url=url)
