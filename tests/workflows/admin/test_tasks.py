"""Tasks, steps and templates in the admin: drawn, escaped, repaired with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.access.models import Identity
from orchestrator.core import cursors
from orchestrator.core.models import DLQEntry
from orchestrator.core.state_machine import transition
from orchestrator.workflows.admin import graph_box
from orchestrator.workflows.models import (
    Step,
    StepDependency,
    StepExecution,
    Task,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.models.tasks import QUARANTINED
from orchestrator.workflows.shown.graph import DRAWN_LIMIT, Graph, Node
from orchestrator.workflows.states import StepState, TaskState
from tests import principals
from tests.core.admin.pages import ESCAPED, SCRIPT, page
from tests.factories import NOW, make_execution, make_step, make_task, make_template
from tests.workflows.laundry import DEFINITION, make_laundry

pytestmark = pytest.mark.usefixtures("database", "sent")

S = StepState


@pytest.fixture
def staff() -> Iterator[Client]:
    user, _ = User.objects.get_or_create(
        username="ada", defaults={"is_staff": True, "is_superuser": True}
    )
    client = Client()
    client.force_login(user)
    yield client
    Identity.objects.all().delete()
    User.objects.all().delete()


def order(crowd: int = 0) -> Task:
    """A task with one step of each interesting state, and if asked for a crowd of workers."""
    task = make_laundry(TaskState.BLOCKED_BY_FAILURES, context={"door": "door-4711"})
    first = make_step(S.COMPLETE, task=task, name="sort", result={"note": SCRIPT})
    failed = make_step(S.ERROR, task=task, name="wash", error={"message": SCRIPT})
    last = make_step(task=task, name="dry")
    edges = [StepDependency(parent=first, child=failed), StepDependency(parent=failed, child=last)]
    for number in range(crowd):
        worker = make_step(task=task, name=f"row_{number:03}", template_step="row")
        edges.append(StepDependency(parent=first, child=worker))
    StepDependency.objects.bulk_create(edges)
    run = make_execution("failed")
    StepExecution.objects.create(step=failed, execution=run, fence=1)
    Step.objects.filter(pk=failed.pk).update(execution=run)
    TransitionRecord.objects.create(
        task=task, step=failed, event="fail", from_state="enqueued_for_orchestration",
        to_state="error", fence=1, actor="executor", reason=SCRIPT, processor="host:1", at=NOW,
    )  # fmt: skip
    DLQEntry.objects.create(
        subject_kind="task",
        subject_id=task.pk,
        dlq_reason="max_retries_exceeded",
        dlq_timestamp=NOW,
        detail="used up",
    )
    return task


def test_task_page_has_graph_steps_executions_timeline_and_entries(staff: Client) -> None:
    task = order()
    html = page(staff, "admin:workflows_task_change", task.pk)
    svg = re.search(r"<svg class=\"m-graph\".*?</svg>", html, re.DOTALL)
    assert svg is not None
    assert re.findall(r'class="m-name"[^>]*>([^<]+)<', svg[0]) == ["sort", "wash", "dry"]
    assert svg[0].count("m-node-success") == svg[0].count("m-node-danger") == 1
    assert svg[0].count('class="m-way') == 2
    assert "wash (error)" in html
    assert "3/3" in html
    assert "max_retries_exceeded" in html
    assert "blocked_by_failures" in html
    assert str(StepExecution.objects.get().execution_id) in html
    assert "door-4711" not in html
    assert SCRIPT not in html
    assert ESCAPED in html
    assert "://" not in svg[0]


def test_every_link_of_a_task_with_a_pile_of_steps_leads_to_a_page(staff: Client) -> None:
    task = order(crowd=7)
    html = page(staff, "admin:workflows_task_change", task.pk)
    links = {unescape(url) for url in re.findall(r'href="(/admin/[^"#]*)"', html)}
    [pile] = [url for url in links if "template_step=row" in url]
    for url in links - {reverse("admin:logout")}:
        assert staff.get(url).status_code == 200, url
    assert len(staff.get(pile).context["cl"].result_list) == 7


def test_step_and_template_pages_render(staff: Client) -> None:
    task = order()
    for step in task.steps.all():
        html = page(staff, "admin:workflows_step_change", step.pk)
        assert step.name in html
        assert SCRIPT not in html
    html = page(staff, "admin:workflows_tasktemplate_change", task.template_id)
    assert html.count("m-unmade") >= 2
    for noun in ("task", "step", "tasktemplate"):
        page(staff, f"admin:workflows_{noun}_changelist")
    assert "3 tasks" not in page(staff, "admin:workflows_task_changelist", state="open")


def test_page_of_an_execution_leads_to_its_step_and_task(staff: Client) -> None:
    task = order()
    html = page(
        staff,
        "admin:orchestrator_execution_change",
        StepExecution.objects.get().execution_id,
    )
    assert reverse("admin:workflows_task_change", args=[task.pk]) in html


def test_task_page_renders_in_every_state(staff: Client) -> None:
    template = make_template("laundry", definition=DEFINITION)
    for state in TaskState:
        assert state in page(
            staff, "admin:workflows_task_change", make_task(state, template=template).pk
        )


@pytest.mark.usefixtures("still_clock")
def test_queries_do_not_grow_with_rows_and_a_thousand_steps_are_shown_in_part(
    staff: Client,
) -> None:
    few, many = order(), order(crowd=1_000)

    def taken(name: str, *args: Any, **query: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            page(staff, f"admin:{name}", *args, **query)
        return len(captured)

    page(staff, "admin:workflows_task_change", few.pk)
    for task in (few, many):
        Step.objects.filter(task=task)
    assert taken("workflows_task_change", many.pk) <= taken("workflows_task_change", few.pk)
    assert (
        taken("workflows_step_changelist", task=many.pk)
        <= taken("workflows_step_changelist", task=few.pk) + 1
    )
    with_two = taken("workflows_task_changelist")
    for _ in range(5):
        order()
    assert taken("workflows_task_changelist") == with_two
    html = page(staff, "admin:workflows_task_change", many.pk)
    assert "row ×1,000" in html  # noqa: RUF001
    assert "All 1,003 steps" in html
    assert html.index("wash (error)") < html.index("row_000")
    assert len(html) < 400_000


def test_steps_of_one_task_are_listed_in_their_order(staff: Client) -> None:
    task, other = order(), order()
    response = staff.get(reverse("admin:workflows_step_changelist"), {"task": str(task.pk)})
    assert [s.name for s in response.context["cl"].result_list] == ["sort", "wash", "dry"]
    found = staff.get(reverse("admin:workflows_step_changelist"), {"q": str(other.pk)[:36]})
    assert {s.task_id for s in found.context["cl"].result_list} == {other.pk}


def test_a_graph_that_nobody_could_read_is_not_drawn() -> None:
    names = [f"s{number}" for number in range(DRAWN_LIMIT + 1)]
    parents = {name: names[:number][-1:] for number, name in enumerate(names)}
    graph = Graph(nodes={name: Node(name=name) for name in names}, parents=parents)
    assert "<svg" not in graph_box.drawn(graph, link=lambda _: "")
    cycle = Graph(nodes={name: Node(name=name) for name in "ab"}, parents={"a": ["b"], "b": ["a"]})
    assert "they close a cycle" in graph_box.drawn(cycle, link=lambda _: "")


# --- repairs -------------------------------------------------------------------------------------


def post(client: Client, step: Step, verb: str, **data: Any) -> Any:
    url = reverse(f"admin:workflows_step_{verb}", args=[step.pk])
    task_page = reverse("admin:workflows_task_change", args=[step.task_id])
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{task_page}"}
    return client.post(url, {"_form_submitted": "True"} | data, headers=headers)


@pytest.mark.parametrize(
    ("verb", "data", "state"),
    [
        ("reset", {}, S.ENQUEUED),
        ("resolve", {}, S.RESOLVED_MANUALLY),
        ("complete", {"result": '{"pin": 7}'}, S.COMPLETE),
        ("cancel", {}, S.CANCELLED),
    ],
)
def test_button_asks_for_a_reason_and_repairs(
    staff: Client, enqueued: Step, verb: str, data: dict[str, Any], state: StepState
) -> None:
    html = page(staff, "admin:workflows_task_change", enqueued.task_id)
    assert f'hx-get="{reverse(f"admin:workflows_step_{verb}", args=[enqueued.pk])}"' in html
    assert "<strong>wash</strong>: enqueued" in page(
        staff, f"admin:workflows_step_{verb}", enqueued.pk
    )
    assert "HX-Redirect" not in post(staff, enqueued, verb, reason="", **data)
    response = post(staff, enqueued, verb, reason="it hangs", **data)
    assert response["HX-Redirect"].endswith(f"/task/{enqueued.task_id}/change/")
    enqueued.refresh_from_db()
    assert enqueued.state == S.ENQUEUED  # it is being run, and nobody said to stop that
    post(staff, enqueued, verb, reason="it hangs", force="on", **data)
    enqueued.refresh_from_db()
    assert enqueued.state == state
    record = TransitionRecord.objects.filter(step=enqueued, actor="user:ada").first()
    assert record is not None
    assert record.reason == "it hangs"
    assert LogEntry.objects.filter(object_id=str(enqueued.pk)).exists()


def test_result_that_is_no_json_is_refused(staff: Client, enqueued: Step) -> None:
    for result in ("{", "[" * 100_000, "9" * 5_000):
        response = post(staff, enqueued, "complete", reason="x", force="on", result=result)
        assert "HX-Redirect" not in response
    enqueued.refresh_from_db()
    assert enqueued.state == S.ENQUEUED


def test_task_is_cancelled_by_its_button_and_then_has_none(staff: Client, enqueued: Step) -> None:
    url = reverse("admin:workflows_task_cancel", args=[enqueued.task_id])
    assert "Cancel task" in page(staff, "admin:workflows_task_change", enqueued.task_id)
    staff.post(url, {"_form_submitted": "True", "reason": "not needed"})
    assert Task.objects.get().state == TaskState.CANCELLED
    html = page(staff, "admin:workflows_task_change", enqueued.task_id)
    assert "Cancel task" not in html
    assert 'class="m-button"' not in html


def test_quarantined_task_is_released_by_its_button(staff: Client, enqueued: Step) -> None:
    transition(enqueued.task, "give_up", now=NOW, actor="executor", advance_tries=QUARANTINED)
    html = page(staff, "admin:workflows_task_change", enqueued.task_id)
    assert "Quarantined" in html
    assert "Release" in html
    url = reverse("admin:workflows_task_release", args=[enqueued.task_id])
    staff.post(url, {"_form_submitted": "True", "reason": "the pack is repaired"})
    assert Task.objects.get().state == TaskState.WAITING_FOR_RETRY
    assert "Release" not in page(staff, "admin:workflows_task_change", enqueued.task_id)


def test_viewers_see_no_buttons_and_may_not_repair(enqueued: Step) -> None:
    client = principals.staff("viewer", principals.given("viewer"))
    try:
        assert 'class="m-button"' not in page(
            client, "admin:workflows_task_change", enqueued.task_id
        )
        assert post(client, enqueued, "reset", reason="x", force="on").status_code == 403
    finally:
        Identity.objects.all().delete()
        User.objects.filter(username="viewer").delete()


def test_dialog_leads_back_to_no_other_host(staff: Client, enqueued: Step) -> None:
    url = reverse("admin:workflows_step_resolve", args=[enqueued.pk])
    for place in ("https://example.org//evil", "https://example.org/x", "javascript:alert(1)"):
        headers = {"HX-Request": "true", "HX-Current-URL": place}
        data = {"_form_submitted": "True", "reason": "x"}
        found = staff.post(url, data, headers=headers)["HX-Redirect"]
        assert found.endswith(f"/step/{enqueued.pk}/change/")


def test_unused_template_of_no_pack_is_listed(staff: Client) -> None:
    make_template()
    assert TaskTemplate.objects.count() == 1
    assert "tests/tidy/1.0.0" in page(staff, "admin:workflows_tasktemplate_changelist")


# --- lists of any size ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listing", "query", "is_bounded"),
    [
        ("task", {"state": "cancelled"}, True),
        ("task", {"state": "steps_in_process"}, False),
        ("task", {"state": "open"}, False),
        ("task", {}, False),
        ("step", {"state__exact": "error"}, True),
        ("step", {"kind__exact": "decision"}, True),
        ("step", {"template_step": "row"}, True),
        ("step", {}, False),
    ],
)
def test_a_filter_without_an_index_looks_at_the_newest_rows_only(
    staff: Client,
    monkeypatch: pytest.MonkeyPatch,
    listing: str,
    query: dict[str, str],
    is_bounded: bool,
) -> None:
    for state in (TaskState.CANCELLED, TaskState.STEPS_IN_PROCESS, TaskState.COMPLETE):
        make_step(task=make_task(state))
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    html = page(staff, f"admin:workflows_{listing}_changelist", **query)
    assert (f"Of the newest 2 {listing}s" in html) is is_bounded


def test_steps_of_one_task_are_all_looked_at(
    staff: Client, enqueued: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 1)
    query = {"task": str(enqueued.task_id), "state__exact": "enqueued"}
    html = page(staff, "admin:workflows_step_changelist", **query)
    assert "Of the newest" not in html
    assert "wash" in html


def test_tasks_are_found_by_each_state(staff: Client) -> None:
    tasks = {state: make_task(state) for state in TaskState}
    for state in tasks:
        html = page(staff, "admin:workflows_task_changelist", state=state)
        found = [other for other, each in tasks.items() if f"/task/{each.pk}/change/" in html]
        assert found == [state]
