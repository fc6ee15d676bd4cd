"""The times from which the limits of a task count, in SQL for both databases.

Each is an expression over a row `task`, and NULL while the limit does not count. Time that a task
spends waiting for somebody's answer counts for no limit: the inquiry has a time of its own. Time in
which its steps wait for workers counts for no limit of a state: the fleet is to blame.
"""

from __future__ import annotations

from orchestrator.core.states import OPEN, ExecutionStatus
from orchestrator.workflows.states import StepState
from orchestrator.workflows.states.steps import IN_FLIGHT


def of_state(vendor: str) -> str:
    """SQL of the time of the last progress in the state: an attempt that began is progress, too.

    NULL while people are asked, or while no attempt of the steps in flight has begun.
    """
    later = "GREATEST({}, {})" if vendor == "postgresql" else "MAX({0}, COALESCE({1}, {0}))"
    return f"""(
        SELECT CASE
            WHEN COUNT(*) FILTER (WHERE step.state = '{StepState.WAITING_FOR_INQUIRY}') > 0
                OR COUNT(*) > 0 AND COUNT(*) = COUNT(*) FILTER (WHERE {_HAS_NOT_BEGUN})
            THEN NULL
            ELSE {later.format("task.clock_started_at", "MAX(execution.started_at)")} END
        FROM workflows_step AS step
        LEFT JOIN orchestrator_execution AS execution ON execution.id = step.execution_id
        WHERE step.task_id = task.id AND step.state IN ({_quoted(IN_FLIGHT)})
    )"""  # noqa: S608 - made of constants


def of_duration(vendor: str) -> str:
    """SQL of the time of the request, later by the time that people took to answer.

    NULL while people are asked. The history says when the first question was open, and the last one
    was not: questions that were open together count once.
    """
    if vendor == "postgresql":
        took = "until - at"
        moved = "task.created_at + COALESCE({}, interval '0')"
    else:
        took = "86400.0 * (julianday(until) - julianday(at))"
        moved = "strftime('%Y-%m-%d %H:%M:%f', task.created_at, COALESCE({}, 0) || ' seconds')"
    answers = f"""(
        SELECT SUM({took}) FILTER (WHERE asked > 0) FROM (
            SELECT record.at, LEAD(record.at) OVER happened AS until,
                SUM(CASE record.to_state WHEN {_ASKED} THEN 1 ELSE -1 END) OVER happened AS asked
            FROM workflows_transitionrecord AS record
            WHERE record.task_id = task.id AND record.step_id IS NOT NULL
                AND {_ASKED} IN (record.from_state, record.to_state)
            WINDOW happened AS (ORDER BY record.at, record.id)
        ) AS question
    )"""  # noqa: S608 - made of constants
    return f"CASE WHEN {_IS_ASKING} THEN NULL ELSE {moved.format(answers)} END"


def _quoted(states: frozenset[StepState] | frozenset[ExecutionStatus]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


_BEGUN = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.CANCELING})
_HAS_NOT_BEGUN = f"execution.status IN ({_quoted(OPEN - _BEGUN)})"
_ASKED = f"'{StepState.WAITING_FOR_INQUIRY}'"
_IS_ASKING = f"""EXISTS (
    SELECT 1 FROM workflows_step AS step WHERE step.task_id = task.id AND step.state = {_ASKED}
)"""  # noqa: S608 - made of constants
