"""Steps that ask people: their task goes on with the answer, and never without its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.core import clock, contents
from orchestrator.core.models import Execution
from orchestrator.inquiries import answering, asking, questions, resuming, waiting
from orchestrator.inquiries.answerers import MayNotAnswer
from orchestrator.inquiries.models import Inquiry
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import Task
from orchestrator.workflows.models.staleness import TaskLimit, TaskStaleness
from orchestrator.workflows.shown import steps
from orchestrator.workflows.task_templates import InvalidTemplate
from tests.factories import seconds
from tests.inquiries.play import YES, YES_OR_NO, ask_action, person
from tests.races import at_once
from tests.workflows.play import ACTOR, Play, step

pytestmark = pytest.mark.usefixtures("database", "sent")


def ask(name: str, *parents: str, **values: Any) -> dict[str, Any]:
    """A step that asks people."""
    known = {"prompt": "Go?", "schema": YES_OR_NO} | values
    return {"name": name, "type": "inquiry", "dependencies": list(parents)} | known


class Asking(Play):
    """A play whose executor also asks."""

    def __init__(self, *steps: Any, **values: Any) -> None:
        ask_action()
        super().__init__(*steps, **values)

    def execution(self, name: str) -> Execution:
        execution = self.step(name).execution
        assert execution is not None
        return execution

    def executor(self, after: float = 2) -> None:
        """One look of an executor, at everything."""
        self.wait(after)
        resuming.look(now=self.now, actor=ACTOR)
        engine.look(now=self.now, actor=ACTOR)

    def inquiry(self, name: str) -> Inquiry:
        return Inquiry.objects.get(waits__execution=self.step(name).execution_id)

    def answer(self, name: str, response: Any = None) -> None:
        answering.respond(self.inquiry(name).pk, response or YES, by=person(), now=self.now)


def test_step_waits_for_the_answer_and_hands_it_to_its_children() -> None:
    play = Asking(ask("ask"), step("ship", "ask", parameters={"ok": "{{ steps.ask.result }}"}))
    play.executor()
    assert play.states == {"ask": "waiting_for_inquiry", "ship": "pending"}
    assert play.state == "steps_in_process"
    play.answer("ask")
    play.executor()
    assert play.states == {"ask": "complete", "ship": "enqueued"}
    assert play.parameters("ship") == {"ok": YES}


def test_prompt_and_assignees_may_be_expressions() -> None:
    values = {"prompt": "Ship {{ task.context.v }}?", "assignees": ["user:{{ task.context.who }}"]}
    play = Asking(ask("ask", **values), context={"v": "1.4", "who": "ada"})
    play.executor()
    inquiry = play.inquiry("ask")
    assert (inquiry.prompt, inquiry.assignees) == ("Ship 1.4?", ["user:ada"])


def test_whoever_requested_the_task_has_asked() -> None:
    play = Asking(ask("ask"))
    grace = person("grace")
    Task.objects.filter(pk=play.id).update(requester_number=grace.key_owner)
    play.executor()
    inquiry = play.inquiry("ask")
    assert inquiry.asked_by == "ada"
    with pytest.raises(MayNotAnswer):
        answering.respond(inquiry.pk, YES, by=grace, now=play.now)


def test_nobody_answers_and_the_step_fails_with_that_reason() -> None:
    play = Asking(ask("ask", ttl_seconds=60))
    play.executor()
    play.wait(60)
    resuming.expire_inquiries(now=play.now)
    play.executor()
    failed = play.step("ask")
    assert failed.state == "error"
    assert failed.error is not None
    assert failed.error["reason"] == "inquiry_timed_out"
    assert play.state == "blocked_by_failures"


def test_nobody_answers_and_the_default_takes_another_branch() -> None:
    no = {"approved": False}
    play = Asking(
        ask("ask", ttl_seconds=60, on_timeout="complete", default=no),
        step("ship", "ask", when="steps.ask.result.approved"),
    )
    play.executor()
    play.wait(60)
    resuming.expire_inquiries(now=play.now)
    play.executor()
    assert play.states == {"ask": "complete", "ship": "complete"}
    assert play.step("ship").execution_id is None
    assert play.state == "complete"


@pytest.mark.parametrize("verb", ["cancel_task", "reset", "resolve", "complete", "cancel_step"])
def test_repair_of_the_step_or_cancel_of_the_task_cancels_the_inquiry(verb: str) -> None:
    play = Asking(ask("ask"))
    play.executor()
    inquiry = play.inquiry("ask")
    by: dict[str, Any] = {"reason": "so it is", "actor": "ada", "now": play.now}
    id = play.step("ask").pk
    match verb:
        case "cancel_task":
            engine.cancel(play.id, **by)
        case "reset":
            engine.reset_for_retry(id, force=True, **by)
        case "resolve":
            engine.resolve_manually(id, force=True, **by)
        case "complete":
            engine.complete_manually(id, result=YES, force=True, **by)
        case "cancel_step":
            engine.cancel_step(id, force=True, **by)
    inquiry.refresh_from_db()
    assert inquiry.state == "cancelled"
    if verb == "reset":
        play.executor()
        play.executor()
        assert play.step("ask").state == "waiting_for_inquiry"
        assert play.inquiry("ask").pk != inquiry.pk


def test_repair_without_force_is_refused_while_somebody_may_answer() -> None:
    play = Asking(ask("ask"))
    play.executor()
    with pytest.raises(engine.StepIsBusy):
        engine.resolve_manually(play.step("ask").pk, reason="x", actor="ada", now=play.now)
    assert play.inquiry("ask").is_open


def test_later_step_waits_for_what_an_action_has_asked() -> None:
    play, inquiry = chatting()
    assert play.inquiry("answer") == inquiry
    play.answer("answer")
    play.executor()
    assert play.step("answer").result == YES
    assert play.state == "complete"


CHAT = [
    step("chat"),
    {"name": "answer", "type": "inquiry", "dependencies": ["chat"],
     "wait_for": "{{ steps.chat.result.inquiry_id }}"},
]  # fmt: skip


def chatting(schema: Any = YES_OR_NO) -> tuple[Asking, Inquiry]:
    """A task whose action has asked, and whose later step waits for the answer."""
    play = Asking(*CHAT)
    chat = play.execution("chat")
    question = questions.read({"prompt": "Go?", "schema": schema})
    inquiry = asking.ask(question, asked=asking.by_execution(chat, purpose="chat"), now=play.now)
    play.end("chat", result={"inquiry_id": str(inquiry.pk)})
    play.executor()
    play.executor()
    return play, inquiry


def test_reset_step_waits_again_for_what_an_action_has_asked() -> None:
    play, inquiry = chatting()
    first = play.execution("answer")
    by: dict[str, Any] = {"reason": "so it is", "actor": "ada", "now": play.now}
    engine.reset_for_retry(play.step("answer").pk, force=True, **by)
    resuming.note_ended([first.pk], now=play.now, actor=ACTOR)
    for _ in range(3):
        play.executor()
    inquiry.refresh_from_db()
    assert inquiry.is_open
    assert play.execution("answer").pk != first.pk
    play.answer("answer")
    play.executor()
    assert play.step("answer").result == YES


def test_secrets_of_an_answer_that_an_action_has_asked_for_are_not_shown() -> None:
    play, inquiry = chatting({"properties": {"pin": {"type": "string", "secret": True}}})
    answering.respond(inquiry.pk, {"pin": "4711-hush"}, by=person(), now=play.now)
    play.executor()
    admin = person(gives="admin")
    (view,) = steps.views([play.step("answer")], now=play.now, seen_by=admin)
    shown = steps.detail(view, view.step.task.template, seen_by=admin)
    assert shown.result == {"pin": "***"}
    execution = play.execution("answer")
    execution.refresh_from_db()
    known = contents.secrets_of([execution])
    assert contents.result(execution, known[execution.pk]) == {"pin": "***"}


def test_cancel_of_the_task_cancels_what_an_action_of_it_has_asked() -> None:
    play = Asking(step("chat"), step("then", "chat"))
    chat = play.execution("chat")
    question = questions.read({"prompt": "Go?"})
    inquiry = asking.ask(question, asked=asking.by_execution(chat, purpose="chat"), now=play.now)
    engine.cancel(play.id, reason="not needed", actor="ada", now=play.now)
    inquiry.refresh_from_db()
    assert inquiry.state == "cancelled"


def test_waiting_for_people_is_no_staleness() -> None:
    play = Asking(ask("ask", ttl_seconds=30 * 86_400))
    play.executor()
    later = play.now + seconds(3 * 86_400)
    assert not TaskLimit.objects.overstepped(now=later, limit=10, lock=False)
    play.answer("ask")
    play.executor()
    assert play.state == "complete"


def test_time_that_people_take_to_answer_counts_for_no_limit() -> None:
    """Questions that are open together count once; a task is young enough after days of them."""
    days = {"ttl_seconds": 30 * 86_400}
    play = Asking(
        ask("left", **days), ask("right", **days), ask("last", "left", "right", **days),
        step("ship", "last"),
    )  # fmt: skip
    requested_at = play.now
    play.executor()
    for hours, name in (10, "left"), (20, "right"), (30, "last"):
        play.now = requested_at + seconds(hours * 3_600)
        play.answer(name)
        play.executor()
        play.executor()
    assert play.states["ship"] == "enqueued"
    assert engine.detect_stale(play.now) == engine.Detected()
    young_until = requested_at + seconds(54 * 3_600)
    assert engine.detect_stale(young_until - seconds(10)) == engine.Detected()
    (found,) = engine.detect_stale(young_until).tasks
    assert (found.limit_name, found.task_age_minutes) == ("duration", 54 * 60)
    assert found.detail == (
        "its age is 1440.0 min without 1800.0 of waiting for answers, allowed are 1440"
    )
    assert found.transition_success


def test_task_that_waits_for_people_is_healthy_and_near_no_limit() -> None:
    play = Asking(ask("ask", ttl_seconds=30 * 86_400), now=clock.now() - seconds(3 * 86_400))
    play.executor()
    none = {"warning": 0, "stale": 0}
    assert TaskStaleness.objects.get().health_status == "healthy"
    assert TaskLimit.objects.count_near(now=clock.now(), most=10) == none
    play.now = clock.now()
    play.answer("ask")
    play.executor(0)
    assert play.state == "complete"


def test_task_that_has_an_answer_is_as_old_as_without_the_wait() -> None:
    play = Asking(
        ask("ask", ttl_seconds=30 * 86_400), step("ship", "ask"),
        now=clock.now() - seconds(3 * 86_400),
    )  # fmt: skip
    play.executor()
    play.now = clock.now()
    play.answer("ask")
    play.executor(0)
    (row,) = TaskStaleness.objects.all()
    assert row.health_status == "healthy"
    assert row.task_age_minutes > 3 * 1_440
    assert TaskLimit.objects.count_near(now=clock.now(), most=10) == {"warning": 0, "stale": 0}


@pytest.mark.parametrize("runs", [20])
def test_two_parallel_branches_answered_at_once_are_never_stuck(runs: int) -> None:
    for _ in range(runs):
        play = Asking(ask("left"), ask("right"), step("join", "left", "right"))
        play.executor()
        ids = {name: play.inquiry(name).pk for name in ("left", "right")}

        def answered(name: str, ids: Any = ids, play: Asking = play) -> None:
            answering.respond(ids[name], YES, by=person(), now=play.now)
            resuming.resume([ids[name]], now=play.now, actor=ACTOR)
            engine.advance_all([play.id], now=play.now, actor=ACTOR)

        at_once(lambda: answered("left"), lambda: answered("right"))
        play.executor()
        assert play.states == {"left": "complete", "right": "complete", "join": "enqueued"}


# --- templates -----------------------------------------------------------------------------------


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "t.yaml"
    head = "name: t\nnamespace_name: tests\nversion: 1.0.0\nsteps:\n"
    file.write_text(head + text)
    try:
        task_templates.load_template(file)
    except InvalidTemplate as invalid:
        return [f"{each.line}: {each.message}" for each in invalid.problems]
    return []


def test_template_names_every_problem_of_a_question_with_its_line(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "  - name: ask\n"
        "    type: inquiry\n"
        "    prompt: ''\n"
        "    assignees: [ada]\n"
        "    ttl_seconds: 0\n"
        "    on_timeout: maybe\n"
        "    schema: {type: array}\n"
        "    action: core.echo\n",
    )
    assert [each.partition(":")[0] for each in found] == ["7", "8", "9", "10", "11", "12"]
    assert "steps.0.prompt: expected a text of 1 to 2,000 characters" in found[0]
    assert "steps.0.assignees.0: expected user:NAME" in found[1]
    assert "steps.0.action: a step that asks people has none" in found[5]


def test_template_checks_the_default_by_the_schema(tmp_path: Path) -> None:
    question = (
        "  - name: ask\n    type: inquiry\n    prompt: Go?\n    on_timeout: complete\n"
        "    schema: {properties: {n: {type: integer}}}\n    default: {n: x}\n"
    )
    (only,) = problems(tmp_path, question)
    assert only.startswith("10: steps.0.default.n: ")


def test_template_refuses_a_question_in_another_kind_of_step(tmp_path: Path) -> None:
    (only,) = problems(tmp_path, "  - name: a\n    action: core.echo\n    prompt: Go?\n")
    assert only == "7: steps.0.prompt: only a step with `type: inquiry` has it"


def test_template_checks_expressions_of_a_question(tmp_path: Path) -> None:
    (only,) = problems(
        tmp_path, "  - name: a\n    type: inquiry\n    prompt: 'Go {{ steps.b.result }}?'\n"
    )
    assert "there is no 'b'" in only


def test_execution_of_a_step_has_no_worker_although_its_runtime_is_unknown_to_all() -> None:
    play = Asking(ask("ask"))
    execution = play.execution("ask")
    assert waiting.take([execution], now=play.now, actor=ACTOR) == 1
    execution.refresh_from_db()
    assert (execution.status, execution.worker) == ("scheduling", None)
