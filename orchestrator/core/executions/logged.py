"""The lines of attempts that were ended because something went wrong, each with its ids.

What ends in its own way is counted in one line a batch (`scheduling.note_completed`): a line for
each would cost more than the rest of its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

import structlog

from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason

log = structlog.get_logger(__name__)

MOST_LINES = 20
"""Of one batch and text; the rest are counted in one more line."""

TIMED_OUT = ("execution timed out", "attempt timed out, tries again")
LOST = ("execution abandoned", "attempt lost, tries again")
LINES = {
    Reason.SCHEDULED_TIMEOUT: TIMED_OUT,
    Reason.DEADLINE_PASSED: TIMED_OUT,
    Reason.RUN_DEADLINE_PASSED: TIMED_OUT,
    Reason.RUN_TIMEOUT: TIMED_OUT,
    Reason.WORKER_LOST: LOST,
    Reason.PROCESS_LOST: LOST,
}
"""The text of an end, and that of an attempt after which there is another one."""


def log_ends(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    actor: str,
    moved: Collection[UUID],
    repeated: Collection[UUID],
) -> None:
    """Log the attempts that ended for this reason, if it is one to be logged: those in `moved`, of
    which those in `repeated` get another attempt."""
    if reason not in LINES:
        return
    for tries_again, event in enumerate(LINES[reason]):
        facts = {"reason": reason.value, "by": actor, "tries_again": bool(tries_again)}
        log_each(
            event,
            [
                execution
                for execution in executions
                if execution.pk in moved and (execution.pk in repeated) == tries_again
            ],
            lambda _, facts=facts: facts,  # type: ignore[misc]
        )


def log_each(
    event: str, executions: Sequence[Execution], facts_of: Callable[[Execution], dict[str, Any]]
) -> None:
    """Log a line for each execution, or for the first of very many: its ids, and these facts."""
    for execution in executions[:MOST_LINES]:
        log.warning(
            event,
            execution_id=str(execution.pk),
            action=execution.action_ref,
            attempt=execution.attempt,
            worker_id=execution.worker_id,
            **facts_of(execution),
        )
    if len(executions) > MOST_LINES:
        log.warning("more lines left out", line=event, n=len(executions) - MOST_LINES)
