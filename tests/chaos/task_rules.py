"""Judges tasks and their steps, from the rows and from what the actions wrote."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from tests.chaos.facts import Evidence, Record, StepRow, Violation

TASK_TERMINAL = frozenset({"complete", "cancelled", "resolved_manually"})
STEP_TERMINAL = frozenset({"complete", "cancelled", "resolved_manually"})
SATISFIED = frozenset({"complete", "resolved_manually"})

_OPEN_TASK = frozenset(
    {
        "pending", "initializing", "enqueuing_steps", "steps_in_process", "evaluating_results",
        "waiting_for_dependencies", "waiting_for_retry", "blocked_by_failures",
    }
)  # fmt: skip
_REPAIRABLE = frozenset(
    {
        "pending", "enqueued", "in_progress", "waiting_for_inquiry", "enqueued_for_orchestration",
        "waiting_for_retry", "error",
    }
)  # fmt: skip

TASK_EVENTS: Mapping[str, tuple[frozenset[str], str]] = {
    "initialize": (frozenset({"pending"}), "initializing"),
    "enqueue_steps": (
        frozenset(
            {
                "initializing", "evaluating_results", "waiting_for_retry", "blocked_by_failures",
                "error",
            }
        ),
        "enqueuing_steps",
    ),
    "process_steps": (frozenset({"enqueuing_steps"}), "steps_in_process"),
    "evaluate": (
        frozenset({"steps_in_process", "waiting_for_dependencies"}), "evaluating_results"
    ),
    "wait_for_dependencies": (
        frozenset({"initializing", "evaluating_results"}), "waiting_for_dependencies"
    ),
    "wait_for_retry": (
        frozenset({"steps_in_process", "evaluating_results"}), "waiting_for_retry"
    ),
    "block": (frozenset({"evaluating_results"}), "blocked_by_failures"),
    "complete": (frozenset({"initializing", "evaluating_results"}), "complete"),
    "fail": (frozenset({"enqueuing_steps", "blocked_by_failures"}), "error"),
    "expire": (_OPEN_TASK, "error"),
    "give_up": (_OPEN_TASK, "error"),
    "release": (frozenset({"error"}), "waiting_for_retry"),
    "resolve": (frozenset({"blocked_by_failures"}), "resolved_manually"),
    "cancel": (_OPEN_TASK | {"error"}, "cancelled"),
}  # fmt: skip

STEP_EVENTS: Mapping[str, tuple[frozenset[str], str]] = {
    "enqueue": (frozenset({"pending", "waiting_for_retry"}), "enqueued"),
    "start": (frozenset({"enqueued"}), "in_progress"),
    "ask": (frozenset({"enqueued"}), "waiting_for_inquiry"),
    "hand_in": (
        frozenset({"enqueued", "in_progress", "waiting_for_inquiry"}),
        "enqueued_for_orchestration",
    ),
    "complete": (frozenset({"enqueued_for_orchestration"}), "complete"),
    "skip": (frozenset({"pending"}), "complete"),
    "wait_for_retry": (frozenset({"enqueued_for_orchestration"}), "waiting_for_retry"),
    "fail": (frozenset({"pending", "waiting_for_retry", "enqueued_for_orchestration"}), "error"),
    "reset": (_REPAIRABLE, "pending"),
    "resolve": (_REPAIRABLE, "resolved_manually"),
    "complete_manually": (_REPAIRABLE, "complete"),
    "cancel": (_REPAIRABLE, "cancelled"),
}
"""event -> (from any of these, to this one)."""

START_TOLERANCE_SECONDS = 1.0
"""The time of a transition is asked for some moments before it is committed, or after."""

IN_FLIGHT = {"enqueued", "in_progress", "enqueued_for_orchestration"}
"""States of a step whose execution is not taken note of yet."""


def task_is_over(evidence: Evidence) -> Iterator[Violation]:
    """Every task that was accepted is there and over: somebody repairs what is blocked.

    A task that is open although all its executions have ended and nothing is due is stuck.
    """
    states = {task.task: task.state for task in evidence.tasks}
    for accepted in evidence.accepted_tasks:
        if accepted not in states:
            yield Violation("task_is_over", f"task {accepted} accepted, and not in the database")
    for task in evidence.tasks:
        if task.state in TASK_TERMINAL:
            continue
        steps = [step for step in evidence.steps if step.task == task.task]
        told = ", ".join(f"{n} {s}" for s, n in Counter(step.state for step in steps).items())
        detail = f"task {task.task} is {task.state}; its steps: {told}"
        waits_for = (step.execution for step in steps if step.state in IN_FLIGHT)
        yield Violation("task_is_over", detail, next(waits_for, None))


def task_ends_once(evidence: Evidence) -> Iterator[Violation]:
    """One transition leads to where a task ends, it is the row's, and nothing follows it."""
    ends: dict[str, list[str]] = defaultdict(list)
    for record in evidence.records:
        if record.step is not None:
            continue
        if ends[record.task]:
            detail = f"task {record.task}: {record.event} after it was {ends[record.task][0]}"
            yield Violation("task_ends_once", detail)
        if record.to_state in TASK_TERMINAL:
            ends[record.task].append(record.to_state)
    for task in evidence.tasks:
        wanted = [task.state] if task.state in TASK_TERMINAL else []
        if ends[task.task] != wanted:
            detail = f"task {task.task} is {task.state}, and its history ends {ends[task.task]}"
            yield Violation("task_ends_once", detail)


def task_histories_are_paths(evidence: Evidence) -> Iterator[Violation]:
    """From `pending` to where the row is, for tasks and for steps, each step of it possible."""
    at: dict[tuple[str, str | None], str] = defaultdict(lambda: "pending")
    for record in evidence.records:
        events = TASK_EVENTS if record.step is None else STEP_EVENTS
        sources, target = events.get(record.event, (frozenset(), ""))
        key = (record.task, record.step)
        if record.from_state != at[key]:
            detail = f"{record.event} from {record.from_state}, and it was {at[key]}"
            yield Violation("task_histories_are_paths", f"{_told(record)}: {detail}")
        elif record.from_state not in sources or record.to_state != target:
            detail = f"{record.event} leads from {record.from_state} to {record.to_state}"
            yield Violation("task_histories_are_paths", f"{_told(record)}: {detail}")
        at[key] = record.to_state
    rows = [((task.task, None), task.state) for task in evidence.tasks]
    rows += [((step.task, step.step), step.state) for step in evidence.steps]  # type: ignore[misc]
    for key, state in rows:
        if at[key] != state:
            detail = f"its history leads to {at[key]}, and it is {state}"
            yield Violation("task_histories_are_paths", f"{key[1] or key[0]}: {detail}")


def steps_account_for_their_executions(evidence: Evidence) -> Iterator[Violation]:
    """Each time that a step is enqueued there is one execution more, and each execution belongs to
    one step; a step that is complete has the result of its latest one, which completed."""
    enqueued = Counter(r.step for r in evidence.records if r.event == "enqueue")
    tries = Counter(step for step, _ in evidence.tries)
    for execution, number in Counter(execution for _, execution in evidence.tries).items():
        if number > 1:
            yield _accounts(f"execution {execution} belongs to {number} steps")
    by_hand = {
        r.step for r in evidence.records if r.event in ("skip", "complete_manually", "resolve")
    }
    for step in evidence.steps:
        if tries[step.step] != enqueued[step.step]:
            detail = f"enqueued {enqueued[step.step]} times, and has {tries[step.step]} executions"
            yield _accounts(f"{_name(step)}: {detail}")
        if step.state != "complete" or step.step in by_hand:
            continue
        row = evidence.row_of.get(step.execution or "")
        if row is None or row.status != "completed":
            told = "none" if row is None else row.status
            yield _accounts(f"{_name(step)}: complete, and its execution is {told}")
        elif row.result != step.result:
            yield _accounts(f"{_name(step)}: its result is not that of its execution")


def steps_wait_for_their_parents(evidence: Evidence) -> Iterator[Violation]:
    """No execution of a step starts before all that it depends on is complete or resolved."""
    satisfied_at: dict[str, float] = {}
    for record in evidence.records:
        if record.step is not None and record.to_state in SATISFIED:
            satisfied_at.setdefault(record.step, record.at)
    executions: dict[str, list[str]] = defaultdict(list)
    for step_id, execution in evidence.tries:
        executions[step_id].append(execution)
    names = {step.step: step.name for step in evidence.steps}
    for step in evidence.steps:
        starts = [
            line.at for execution in executions[step.step]
            for line in evidence.starts_of.get(execution, ())
        ]  # fmt: skip
        for parent in sorted(step.parents) if starts else ():
            done_at = satisfied_at.get(parent, float("inf"))
            if min(starts) < done_at - START_TOLERANCE_SECONDS:
                detail = f"{_name(step)}: started before {names.get(parent, parent)} was complete"
                yield Violation("steps_wait_for_their_parents", detail)


def _accounts(detail: str) -> Violation:
    return Violation("steps_account_for_their_executions", detail)


def _told(record: Record) -> str:
    return f"task {record.task}" if record.step is None else f"step {record.step}"


def _name(step: StepRow) -> str:
    return f"step {step.name} of {step.task}"


RULES: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    task_is_over,
    task_ends_once,
    task_histories_are_paths,
    steps_account_for_their_executions,
    steps_wait_for_their_parents,
)
