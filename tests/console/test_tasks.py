"""Tasks in the console: lists, the views of one, repairs, templates."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.console import repairs
from orchestrator.core import clock, investigations
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import (
    StalenessDefault,
    Step,
    StepDependency,
    StepExecution,
    Task,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.shown import gantt, gantt_svg
from orchestrator.workflows.states import StepState, TaskState
from tests.console.costs import looking_alone
from tests.factories import make_action, make_execution, make_step, make_task, make_template
from tests.principals import given, staff
from tests.workflows.laundry import DEFINITION, make_laundry

Person = Callable[[str], Client]

S, T = StepState, TaskState
SCRIPT = "<script>alert(1)</script>"
VIEWS = ("graph", "gantt", "steps", "timeline")
SECONDS_MAX, BYTES_MAX = 3.0, 400_000
"""Of a graph and a gantt of 1,000 steps: 0.3 s on an idle machine."""


def blocked(crowd: int = 0) -> Task:
    """A task whose step `wash` has failed after three attempts; `dry` waits for it."""
    now = clock.now()
    make_action()
    task = make_laundry(T.BLOCKED_BY_FAILURES, now=now, context={"door": "door-4711"})
    first = make_step(S.COMPLETE, task=task, name="sort", now=now, result={"note": SCRIPT})
    failed = make_step(S.ERROR, task=task, name="wash", now=now,
                       error={"message": f"no water {SCRIPT}"}, attempts=3)  # fmt: skip
    last = make_step(task=task, name="dry", now=now)
    edges = [StepDependency(parent=first, child=failed), StepDependency(parent=failed, child=last)]
    workers = [
        Step(task=task, name=f"row_{n:04}", template_step="row", state=S.COMPLETE,
             state_entered_at=now, ended_at=now)
        for n in range(crowd)
    ]  # fmt: skip
    Step.objects.bulk_create(workers)
    edges += [StepDependency(parent=first, child=worker) for worker in workers]
    StepDependency.objects.bulk_create(edges)
    tries(failed, now)
    TransitionRecord.objects.create(
        task=task, step=failed, event="fail", from_state="enqueued_for_orchestration",
        to_state="error", fence=1, actor="executor", reason=SCRIPT, processor="h:1", at=now,
    )  # fmt: skip
    return task


def tries(step: Step, now: Any) -> None:
    """Three executions of a step: each waited 1 s, ran 2 s, and a pause of 1 s followed."""
    for number in range(3):
        began = now - timedelta(seconds=12 - 4 * number)
        run = make_execution("failed", now=now, created_at=began,
                             started_at=began + timedelta(seconds=1),
                             ended_at=began + timedelta(seconds=3))  # fmt: skip
        StepExecution.objects.create(step=step, execution=run, fence=number + 1)
        Step.objects.filter(pk=step.pk).update(execution=run)


@pytest.fixture
def stuck() -> Task:
    return blocked()


@pytest.fixture
def real(sent: None) -> Task:
    """A task of the engine whose first step has failed for good."""
    make_action()
    definition = DEFINITION | {
        "steps": [{**DEFINITION["steps"][0], "retry": {"max_attempts": 1}}, DEFINITION["steps"][1]]
    }
    task_templates.install_templates([definition], now=clock.now())
    template = TaskTemplate.objects.get()
    new = engine.NewTask(namespace=template.namespace, name=template.name,
                         version=template.version, context={"shirts": 3})  # fmt: skip
    task = engine.request(new, requested_by="ada", now=clock.now())
    engine.advance(task.pk, now=clock.now(), actor="executor")
    fail(Step.objects.get(task=task, name="wash"))
    task.refresh_from_db()
    assert task.state == T.BLOCKED_BY_FAILURES
    return task


def fail(step: Step) -> None:
    """Let the execution of a step fail, and its task be advanced."""
    step.refresh_from_db()
    assert step.execution_id is not None
    now = clock.now()
    Execution.objects.filter(pk=step.execution_id).update(
        status="failed", ended_at=now, reason="action_failed", result={"message": "no water"}
    )
    engine.note_ended([step.execution_id], now=now, actor="executor")
    engine.advance(step.task_id, now=now, actor="executor")


def html(client: Client, page: str, /, *args: Any, answer: int = 200, **query: Any) -> str:
    response = client.get(reverse(f"console:{page}", args=args), query)
    assert response.status_code == answer, response.content.decode()[:500]
    return response.content.decode()


def repair(client: Client, step: Step, verb: str, **values: Any) -> Any:
    url = reverse("console:repair", args=[step.task_id, step.pk])
    back = reverse("console:task", args=[step.task_id])
    known = {"repair": verb, "reason": "by hand", "seen": str(step.fence), "back": back}
    return client.post(url, known | values, follow=True)


def said(answer: Any) -> str:
    """What a form's answer says at the top of the page."""
    return " ".join(
        re.findall(r'<li class="(?:error|success)">(.*?)</li>', answer.content.decode())
    )


# --- the list ------------------------------------------------------------------------------------


def test_tasks_that_need_attention_come_first_with_what_blocks_them(
    admin_client: Client, stuck: Task
) -> None:
    newer = [make_task(T.COMPLETE, now=clock.now()) for _ in range(3)]
    page = html(admin_client, "tasks")
    rows = re.findall(r'<tr id="x-([^"]+)"', page)
    assert rows == [str(stuck.pk), *(str(task.pk) for task in reversed(newer))]
    assert "wash: no water" in page
    assert "1/3" in page
    assert SCRIPT not in page


def test_a_task_in_error_with_an_open_investigation_needs_attention(admin_client: Client) -> None:
    lost = make_task(T.ERROR, now=clock.now())
    DLQEntry.objects.create(subject_kind="task", subject_id=lost.pk, dlq_reason="staleness_timeout",
                            dlq_timestamp=clock.now())  # fmt: skip
    closed = make_task(T.ERROR, now=clock.now())
    page = html(admin_client, "tasks", state="attention")
    assert str(lost.pk) in page
    assert str(closed.pk) not in page


def test_tasks_near_a_limit_are_found_before_they_are_stale(admin_client: Client) -> None:
    StalenessDefault.objects.follow_settings()
    now = clock.now()
    ages = {"early": 5, "near": 25, "stale": 31}
    early, near, stale = (
        make_task(T.STEPS_IN_PROCESS, now=now - timedelta(minutes=age)) for age in ages.values()
    )
    page = html(admin_client, "tasks", state="near limit")
    assert set(re.findall(r'<tr id="x-([^"]+)"', page)) == {str(near.pk), str(stale.pk)}
    assert "83% of its limit, steps_in_process" in page
    assert str(early.pk) not in page


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"state": "open"}, 2),
        ({"state": "blocked_by_failures"}, 1),
        ({"state": "complete"}, 1),
        ({"state": "blocked"}, 0),
        ({"template": "tests/laundry"}, 1),
        ({"template": "tests/laundry/1.0.0"}, 1),
        ({"template": "tidy"}, 2),
        ({"template": "tests/laundry/2.0.0"}, 0),
        ({"correlation": "c-1"}, 1),
        ({"initiator": "ada"}, 1),
        ({"source": "shop"}, 1),
        ({"within": "1h"}, 3),
        ({"before": "%"}, 3),
    ],
)
def test_filters_of_the_address_choose_tasks(
    admin_client: Client, stuck: Task, query: dict[str, Any], count: int
) -> None:
    now = clock.now()
    make_task(T.COMPLETE, now=now, correlation_id="c-1", initiator="ada")
    make_task(T.STEPS_IN_PROCESS, now=now, source_system="shop")
    page = html(admin_client, "tasks", **query)
    assert page.count('<tr id="x-') == count


def test_a_list_of_tasks_that_is_read_stays_and_counts_what_is_newer(admin_client: Client) -> None:
    tasks = [make_task(T.COMPLETE, now=clock.now()) for _ in range(4)]
    headers = {"X-Live": "1", "X-First": str(tasks[1].pk)}
    page = admin_client.get(reverse("console:tasks"), headers=headers).content.decode()
    assert "2 newer" in page
    assert page.count('<tr id="x-') == 2


def test_pages_of_tasks_follow_each_other_without_gap_or_repetition(
    admin_client: Client, stuck: Task
) -> None:
    for _ in range(60):
        make_task(T.COMPLETE, now=clock.now())
    page, seen = html(admin_client, "tasks"), []
    while True:
        seen += re.findall(r'<tr id="x-([^"]+)"', page)
        older = re.search(r'href="\?(before=[^"]+)"', page)
        if older is None:
            break
        page = html(admin_client, "tasks", before=older[1].removeprefix("before="))
    assert len(seen) == len(set(seen)) == 61


def test_now_counts_open_and_blocked_tasks_and_the_palette_finds_one(
    admin_client: Client, person: Person, stuck: Task
) -> None:
    page = html(admin_client, "now")
    assert re.search(r'state=open"><span class="name">open</span> <span class="count">1<', page)
    assert re.search(r'class="number danger"><a href="[^"]+state=blocked_by_failures"', page)
    found = admin_client.get(reverse("console:palette"), {"q": str(stuck.pk)}).json()["items"]
    assert [each["url"] for each in found] == [reverse("console:task", args=[stuck.pk])]
    assert not person("").get(reverse("console:palette"), {"q": str(stuck.pk)}).json()["items"]
    tail = {"q": f"…{stuck.pk.hex[-6:]}"}
    found = admin_client.get(reverse("console:palette"), tail).json()["items"]
    assert [each["url"] for each in found] == [reverse("console:task", args=[stuck.pk])]


# --- one task ------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_says_what_blocks_the_task_and_offers_the_repairs(
    admin_client: Client, stuck: Task, view: str
) -> None:
    page = html(admin_client, "task", stuck.pk, view=view)
    assert re.search(r"Blocked by wash since \d\d:\d\d:\d\d: no water", page)
    assert 'data-opens="reset-wash"' in page
    assert '<dialog id="complete-wash"' in page
    assert f'href="?view={view}" aria-current="page"' in page
    assert SCRIPT not in page
    assert "door-4711" not in page
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)


def test_the_graph_says_of_each_step_its_state_and_what_it_waits_for(
    admin_client: Client, stuck: Task
) -> None:
    page = html(admin_client, "task", stuck.pk)
    names = re.findall(r'<a href="[^"]+" aria-label="([^"]+)"', page)
    assert names == [
        "sort: complete",
        "wash: error, 3 of 3 attempts",
        "dry: pending, waits for wash",
    ]
    assert page.count('aria-current="true"') == 1


def test_the_bars_of_the_gantt_agree_with_the_times_of_the_executions(
    admin_client: Client, stuck: Task
) -> None:
    Task.objects.filter(pk=stuck.pk).update(state=T.COMPLETE, ended_at=clock.now())
    stuck.refresh_from_db()
    page = html(admin_client, "task", stuck.pk, view="gantt")
    chart = gantt.of_task(stuck, clock.now())
    pixels = gantt_svg.PLOT_WIDTH / (chart.end - chart.begin).total_seconds()
    for number, each in enumerate(StepExecution.objects.filter(step__name="wash"), 1):
        run = each.execution
        assert run.started_at is not None
        assert run.ended_at is not None
        for kind, begin, end in (
            ("waits", run.created_at, run.started_at),
            ("runs", run.started_at, run.ended_at),
        ):
            x, width = bar(page, f"{kind}-wash-{number}")
            expected = gantt_svg.LABEL_WIDTH + (begin - chart.begin).total_seconds() * pixels
            assert x == pytest.approx(expected, abs=1)
            assert width == pytest.approx((end - begin).total_seconds() * pixels, abs=1)
    assert bar(page, "pauses-wash-2")[1] == pytest.approx(pixels, abs=1)
    assert page.count('class="m-cross" d="M') == 4  # three failures, and one in the legend
    assert 'fill="url(#m-hatch)"' in page


def bar(page: str, id: str) -> tuple[float, float]:
    found = re.search(rf'<rect id="{id}" x="([\d.]+)" y="\d+" width="([\d.]+)"', page)
    assert found is not None, id
    return float(found[1]), float(found[2])


def test_steps_are_listed_with_those_that_block_first_and_by_page(admin_client: Client) -> None:
    task = blocked(crowd=70)
    first = html(admin_client, "task", task.pk, view="steps")
    names = re.findall(r'<tr id="s-[^"]+"><td><a [^>]+>([^<]+)', first)
    assert names[:2] == ["wash", "dry"]
    assert "wash (error)" in first
    after = re.search(r"after=([\w-]+)", first)
    assert after is not None
    second = html(admin_client, "task", task.pk, view="steps", after=after[1])
    names += re.findall(r'<tr id="s-[^"]+"><td><a [^>]+>([^<]+)', second)
    assert len(names) == len(set(names)) == 73
    assert "row_0003" not in html(admin_client, "task", task.pk, view="steps", state="error")


def test_the_timeline_folds_moves_between_inner_states(admin_client: Client, real: Task) -> None:
    page = html(admin_client, "task", real.pk, view="timeline")
    events = re.findall(r"</td><td>(\w+)</td><td>[\w:]*</td><td", page)
    assert events == ["accepted", "fail", "block"]
    whole = html(admin_client, "task", real.pk, view="timeline", inner="yes")
    assert TransitionRecord.objects.count() == whole.count('</td><td class="unbroken">+')
    assert "enqueue_steps" in whole
    folded = TransitionRecord.objects.count() - 2
    assert f"{folded} moves between inner states are folded" in page


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("step", ["", "dry"])
def test_a_page_of_a_task_takes_no_more_queries_than_it_may(
    admin_client: Client, view: str, step: str
) -> None:
    task = blocked(crowd=200)
    DLQEntry.objects.create(subject_kind="task", subject_id=task.pk, dlq_reason="manual_dlq",
                            dlq_timestamp=clock.now())  # fmt: skip
    for state in (T.BLOCKED_BY_FAILURES, T.ERROR):
        Task.objects.filter(pk=task.pk).update(
            state=state, ended_at=clock.now() if state == T.ERROR else None
        )
        html(admin_client, "task", task.pk, view=view, step=step)
        with looking_alone():
            html(admin_client, "task", task.pk, view=view, step=step)


@pytest.mark.parametrize("name", ["tasks", "templates"])
def test_a_list_takes_no_more_queries_than_it_may_and_few_bytes(
    admin_client: Client, name: str
) -> None:
    for number in range(30):
        blocked()
        make_task(T.COMPLETE, now=clock.now())
        make_template(f"t{number}")
    html(admin_client, name)
    with looking_alone():
        page = html(admin_client, name)
    assert len(page) < 60_000


@pytest.mark.parametrize("view", ["graph", "gantt"])
@pytest.mark.parametrize("shape", ["batch", "chain", "layers"])
def test_a_thousand_steps_are_drawn_soon_and_small(
    admin_client: Client, view: str, shape: str
) -> None:
    task = thousand(shape)
    html(admin_client, "task", task.pk, view=view)
    began = time.process_time()
    page = html(admin_client, "task", task.pk, view=view)
    assert time.process_time() - began < SECONDS_MAX
    assert len(page.encode()) < BYTES_MAX
    assert "<svg" in page


def thousand(shape: str) -> Task:
    """1,000 steps, each tried once: alike, one after the other, or in layers of 50 whose steps wait
    for two of the layer before."""
    now = clock.now()
    action = make_action()
    task = make_laundry(T.STEPS_IN_PROCESS, now=now)
    made = [
        Step(task=task, name=f"step_{n:04}", template_step="row" if shape == "batch" else f"s{n}",
             state=S.COMPLETE, state_entered_at=now, ended_at=now, attempts=1)
        for n in range(1_000)
    ]  # fmt: skip
    Step.objects.bulk_create(made)
    edges = []
    if shape == "chain":
        edges = [(made[n - 1], made[n]) for n in range(1, 1_000)]
    elif shape == "layers":
        edges = [(made[(n // 50 - 1) * 50 + (n * 7 + k * 11) % 50], made[n])
                 for n in range(50, 1_000) for k in (0, 1)]  # fmt: skip
    StepDependency.objects.bulk_create(StepDependency(parent=p, child=c) for p, c in edges)
    runs = [
        Execution(action=action, action_ref=action.ref, status="completed", reason="succeeded",
                  timeout_seconds=60, attempt=1, created_at=now - timedelta(seconds=5),
                  started_at=now - timedelta(seconds=3), ended_at=now, deadline_at=now)
        for _ in made
    ]  # fmt: skip
    Execution.objects.bulk_create(runs)
    StepExecution.objects.bulk_create(
        StepExecution(step=step, execution=run, fence=1)
        for step, run in zip(made, runs, strict=True)
    )
    return task


def test_a_task_or_step_that_is_not_there_is_said_to_be_none(
    admin_client: Client, stuck: Task
) -> None:
    missing = "00000000-0000-7000-8000-000000000000"
    assert f"No task has the id {missing}" in html(admin_client, "task", missing, answer=404)
    page = html(admin_client, "task", stuck.pk, step="nothing", view="sideways", after="%")
    assert "Blocked by wash" in page
    url = reverse("console:repair", args=[missing, stuck.steps.get(name="wash").pk])
    assert admin_client.post(url, {"repair": "reset", "reason": "x"}).status_code == 404


def test_an_execution_of_a_step_leads_to_its_task(admin_client: Client, stuck: Task) -> None:
    run = StepExecution.objects.first()
    assert run is not None
    page = html(admin_client, "execution", run.execution_id)
    assert f'href="/console/tasks/{stuck.pk}"' in page
    assert f'href="/console/tasks/{stuck.pk}?step=wash"' in page


# --- repairs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "values", "state"),
    [
        ("reset", {}, S.ENQUEUED),
        ("resolve", {}, S.RESOLVED_MANUALLY),
        ("complete", {"result": '{"pin": 7}'}, S.COMPLETE),
        ("cancel", {}, S.CANCELLED),
    ],
)
def test_a_repair_moves_the_step_and_is_kept_with_its_reason(
    admin_client: Client, real: Task, verb: str, values: dict[str, str], state: StepState
) -> None:
    step = Step.objects.get(task=real, name="wash")
    answer = repair(admin_client, step, verb, view="gantt", **values)
    assert f"wash {repairs.REPAIRS[verb].done}" in said(answer)
    assert answer.redirect_chain[-1][0].endswith("?view=gantt&step=wash")
    step.refresh_from_db()
    assert step.state == state
    record = TransitionRecord.objects.filter(step=step, actor="user:admin").first()
    assert record is not None
    assert record.reason == "by hand"


def test_a_result_that_does_not_fit_changes_nothing_and_says_why(
    admin_client: Client, real: Task
) -> None:
    step = Step.objects.get(task=real, name="wash")
    for result, why in (
        ('{"pin": "seven"}', "does not fit result_schema: /pin"),
        ("{", "not JSON at line 1, column 2"),
        ("", "not JSON"),
        ("[" * 100_000, "cannot be read: is nested more than 50 levels deep"),
        ("9" * 5_000, "cannot be read: expected a number of at most 4,300 digits"),
    ):
        assert why in said(repair(admin_client, step, "complete", result=result, seen="9" * 5_000))
    step.refresh_from_db()
    assert step.state == S.ERROR


@pytest.mark.parametrize("reason", ["", "x" * 201])
def test_nothing_is_repaired_without_a_reason(
    admin_client: Client, real: Task, reason: str
) -> None:
    step = Step.objects.get(task=real, name="wash")
    assert "A reason of 1 to 200" in said(repair(admin_client, step, "resolve", reason=reason))
    step.refresh_from_db()
    assert step.state == S.ERROR


def test_the_second_of_two_operators_is_told_who_was_first_and_changes_nothing(
    admin_client: Client, person: Person, real: Task
) -> None:
    seen = Step.objects.get(task=real, name="wash")
    first = person("operator")
    repair(first, seen, "complete", result='{"pin": 7}', reason="it was me")
    second = said(repair(admin_client, seen, "complete", result='{"pin": 8}'))
    assert "complete_manually by user:operator at" in second
    assert "it was me" in second
    seen.refresh_from_db()
    assert seen.result == {"pin": 7}


def test_a_step_that_was_reset_and_failed_again_is_not_reset_by_who_saw_it_before(
    admin_client: Client, person: Person, real: Task
) -> None:
    seen = Step.objects.get(task=real, name="wash")
    fence = str(seen.fence)
    repair(person("operator"), seen, "reset")
    fail(seen)
    answer = said(repair(admin_client, seen, "reset", seen=fence))
    assert "has moved since you looked: it is error" in answer
    assert "reset by user:operator" in answer
    assert TransitionRecord.objects.filter(event="reset").count() == 1


def test_the_investigation_is_closed_with_the_repair_if_that_is_asked_for(
    admin_client: Client, real: Task
) -> None:
    entry = DLQEntry.objects.get(subject_id=real.pk)
    step = Step.objects.get(task=real, name="wash")
    page = html(admin_client, "task", real.pk)
    assert f'name="close" value="{entry.dlq_entry_uuid}" checked' in page
    answer = repair(admin_client, step, "resolve", close=str(entry.dlq_entry_uuid))
    assert "Its investigation is closed" in said(answer)
    entry.refresh_from_db()
    assert (entry.resolution_status, entry.resolved_by) == ("manually_resolved", "user:admin")
    assert entry.resolution_notes == "by hand"


def test_an_investigation_of_something_else_is_not_closed(admin_client: Client, real: Task) -> None:
    other = DLQEntry.objects.create(
        subject_kind="task", subject_id=make_task().pk, dlq_reason="manual_dlq",
        dlq_timestamp=clock.now(),
    )  # fmt: skip
    step = Step.objects.get(task=real, name="wash")
    for uuid in (str(other.dlq_entry_uuid), "nonsense"):
        assert repair(admin_client, step, "resolve", close=uuid).status_code == 404
    step.refresh_from_db()
    other.refresh_from_db()
    assert (step.state, other.resolution_status) == (S.ERROR, "pending")


def test_an_investigation_that_was_closed_meanwhile_does_not_stop_the_repair(
    admin_client: Client, real: Task
) -> None:
    entry = DLQEntry.objects.get(subject_id=real.pk)
    investigations.close(
        entry.dlq_entry_uuid, resolution=DLQEntry.Resolution.CANCELLED, now=clock.now(), actor="x"
    )
    step = Step.objects.get(task=real, name="wash")
    answer = repair(admin_client, step, "resolve", close=str(entry.dlq_entry_uuid))
    assert "a closed entry is final" in said(answer)
    step.refresh_from_db()
    assert step.state == S.RESOLVED_MANUALLY


MAY = {
    "": (set(), set()),
    "viewer": (set(), set()),
    "author": (set(), {"cancel"}),
    "operator": (set(repairs.REPAIRS), set(repairs.ENDS)),
    "admin": (set(repairs.REPAIRS), set(repairs.ENDS)),
}


@pytest.mark.parametrize("role", MAY)
def test_an_act_is_drawn_for_who_may_do_it_and_refused_to_others(
    person: Person, real: Task, role: str
) -> None:
    client, (steps, tasks) = person(role), MAY[role]
    step = Step.objects.get(task=real, name="wash")
    page = client.get(reverse("console:task", args=[real.pk])).content.decode()
    for verb in repairs.REPAIRS:
        assert (f'id="{verb}-wash"' in page) == (verb in steps)
    for verb in ("resolve", "cancel"):
        assert (f'id="task-{verb}"' in page) == (verb in tasks)
    refused = set(repairs.REPAIRS) - steps
    for verb in refused:
        answer = repair(client, step, verb)
        assert answer.status_code == 403
        assert "steps.repair" in answer.content.decode()
    for act in set(repairs.ENDS) - tasks:
        url = reverse("console:end-task", args=[real.pk])
        assert client.post(url, {"act": act, "reason": "x"}).status_code == 403
    step.refresh_from_db()
    assert step.state == S.ERROR


def test_nothing_is_repaired_by_looking_and_unknown_acts_are_refused(
    admin_client: Client, real: Task
) -> None:
    step = Step.objects.get(task=real, name="wash")
    url = reverse("console:repair", args=[real.pk, step.pk])
    assert admin_client.get(url, {"repair": "reset", "reason": "x"}).status_code == 405
    assert repair(admin_client, step, "explode").status_code == 404
    end = reverse("console:end-task", args=[real.pk])
    assert admin_client.get(end).status_code == 405
    assert admin_client.post(end, {"act": "explode", "reason": "x"}).status_code == 404


def test_a_task_is_ended_with_a_reason_and_the_second_is_told_who_did(
    admin_client: Client, person: Person, real: Task
) -> None:
    url = reverse("console:end-task", args=[real.pk])
    back = reverse("console:task", args=[real.pk])
    admin_client.post(url, {"act": "cancel", "reason": "", "back": back})
    real.refresh_from_db()
    assert real.state == T.BLOCKED_BY_FAILURES
    person("operator").post(url, {"act": "cancel", "reason": "not needed"})
    real.refresh_from_db()
    assert real.state == T.CANCELLED
    answer = admin_client.post(url, {"act": "resolve", "reason": "x", "back": back}, follow=True)
    assert "cancel by user:operator at" in said(answer)
    page = html(admin_client, "task", real.pk)
    assert "by user:operator: not needed" in page
    assert 'data-opens="reset-wash"' not in page


# --- templates -----------------------------------------------------------------------------------


def test_templates_are_listed_with_how_their_tasks_went(admin_client: Client, stuck: Task) -> None:
    make_laundry(T.COMPLETE, now=clock.now())
    page = html(admin_client, "templates")
    assert 'href="/console/templates/tests/laundry/1.0.0"' in page
    assert re.search(r"template=tests%2Flaundry%2F1\.0\.0&amp;within=24h\">2</a></td><td>50%", page)
    assert "No template has this" in html(admin_client, "templates", name="zebra")


def test_numbers_of_a_template_need_the_permission_at_its_place(stuck: Task) -> None:
    make_task(T.COMPLETE, template=make_template("tidy", namespace="shop"), now=clock.now())
    reader = given("templates.read")
    ann = staff("ann", reader, given("analytics.read", namespaces=["shop"]))
    bob = staff("bob", reader)
    for client, numbered in ((ann, ["shop/tidy/1.0.0"]), (bob, [])):
        rows = re.findall(r'<tr id="t-.*?</tr>', html(client, "templates"), re.DOTALL)
        assert len(rows) == 2
        found = re.findall(r"shop/tidy/1.0.0(?=</a></td><td><a .*?>1</a>)", "".join(rows))
        assert found == numbered
        assert sum("within=" in row for row in rows) == len(numbered)


def test_a_template_has_its_graph_its_actions_and_no_secrets(
    admin_client: Client, stuck: Task
) -> None:
    page = html(admin_client, "template", "tests", "laundry", "1.0.0")
    assert 'aria-label="wash: standard, not created yet"' in page
    assert 'aria-label="dry: standard, not created yet, waits for wash"' in page
    assert 'href="#step-dry"' in page
    assert 'href="/console/executions?q=action%3Acore.echo"' in page
    assert "There is no template tests/laundry/2.0.0" in html(
        admin_client, "template", "tests", "laundry", "2.0.0", answer=404
    )


def test_a_page_of_a_template_takes_no_more_queries_than_it_may(
    admin_client: Client, stuck: Task
) -> None:
    html(admin_client, "template", "tests", "laundry", "1.0.0")
    with looking_alone():
        html(admin_client, "template", "tests", "laundry", "1.0.0")


@pytest.mark.parametrize("name", ["tasks", "task", "templates", "template"])
def test_who_has_no_grant_sees_no_task_and_is_told_the_permission(
    person: Person, stuck: Task, name: str
) -> None:
    args: dict[str, list[Any]] = {
        "task": [stuck.pk], "template": ["tests", "laundry", "1.0.0"]
    }  # fmt: skip
    page = html(person(""), name, *args.get(name, []), answer=403)
    assert re.search(r"needs the permission (tasks|templates)\.read", page)
    assert "laundry" not in page


def test_a_dialog_of_a_result_begins_with_what_its_schema_names(
    admin_client: Client, real: Task
) -> None:
    page = html(admin_client, "task", real.pk)
    typed = re.search(r"<textarea [^>]+>(.*?)</textarea>", page, re.DOTALL)
    assert typed is not None
    assert json.loads(typed[1].replace("&quot;", '"')) == {"pin": 0}
