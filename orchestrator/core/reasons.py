"""Reasons for the end of an execution or an attempt. Each says what is known of the action."""

from __future__ import annotations

import enum


class Known(enum.Enum):
    """Knowledge about an action whose attempt ended."""

    NEVER_STARTED = "never_started"
    """It did not begin: running it again is always safe."""

    OUTCOME_UNKNOWN = "outcome_unknown"
    """It may have happened, in part or whole: safe to run again only if it is idempotent."""

    FINISHED = "finished"
    """It ran, and the worker saw how it ended."""

    @property
    def text(self) -> str:
        """The text for people."""
        return _KNOWN[self]


BEGAN_BEFORE = "An earlier attempt started: run it again only if it is idempotent"
"""Said in place of the text of what never started, if another attempt did."""

_KNOWN = {
    Known.NEVER_STARTED: "It never started: running it again is safe",
    Known.OUTCOME_UNKNOWN: "Its outcome is unknown: run it again only if it is idempotent",
    Known.FINISHED: "It ran, and the worker saw how it ended",
}


class Reason(enum.StrEnum):
    """A reason code, what is known of the action, and the sentence for people."""

    known: Known
    text: str

    def __new__(cls, code: str, known: Known = Known.FINISHED, text: str = "") -> Reason:
        member = str.__new__(cls, code)
        member._value_ = code
        member.known = known
        member.text = text
        return member

    SUCCEEDED = "succeeded", Known.FINISHED, "The action completed"
    ACTION_FAILED = "action_failed", Known.FINISHED, "The action failed"
    TRY_AGAIN = "try_again", Known.FINISHED, "The action asked for another attempt"
    TASK_REJECTED = (
        "task_rejected",
        Known.NEVER_STARTED,
        "The action said that it cannot begin now, and asked to be run later",
    )
    RUN_TIMEOUT = "run_timeout", Known.FINISHED, "The action ran longer than its time limit"

    MEMORY_LIMIT_EXCEEDED = (
        "memory_limit_exceeded",
        Known.FINISHED,
        "The action used more memory than it may",
    )
    PROCESS_LIMIT_EXCEEDED = (
        "process_limit_exceeded",
        Known.FINISHED,
        "The action started more processes than it may",
    )
    OUTPUT_LIMIT_EXCEEDED = (
        "output_limit_exceeded",
        Known.FINISHED,
        "The action wrote more output than it may",
    )
    CPU_LIMIT_EXCEEDED = (
        "cpu_limit_exceeded",
        Known.FINISHED,
        "The action used more processor time than it may",
    )
    FILE_SIZE_LIMIT_EXCEEDED = (
        "file_size_limit_exceeded",
        Known.FINISHED,
        "The action wrote a larger file than it may",
    )
    PROCESSES_LEFT = (
        "processes_left",
        Known.FINISHED,
        "The action left processes behind, in sessions of their own",
    )
    ADDRESS_REFUSED = (
        "address_refused",
        Known.FINISHED,
        "The action asked for an address that it may not reach",
    )
    ENVIRONMENT_FAILED = (
        "environment_failed",
        Known.NEVER_STARTED,
        "The pack's environment could not be made on the worker",
    )
    PACK_UNAVAILABLE = (
        "pack_unavailable",
        Known.NEVER_STARTED,
        "The worker does not have the code of the pack",
    )

    KEY_REFUSED = (
        "key_refused",
        Known.NEVER_STARTED,
        "A key that its parameters refer to could not be opened",
    )

    QUEUE_TTL_EXPIRED = "queue_ttl_expired", Known.NEVER_STARTED, "Worker queue TTL expired"
    SCHEDULED_TIMEOUT = (
        "scheduled_timeout",
        Known.NEVER_STARTED,
        "Execution timeout: worker did not pick up task within timeout",
    )
    NO_WORKER_AVAILABLE = "no_worker_available", Known.NEVER_STARTED, "no workers available"
    POLICY_EXCEEDED = (
        "policy_exceeded",
        Known.NEVER_STARTED,
        "A policy that lets nothing wait did not admit it",
    )
    UNROUTABLE = "unroutable", Known.NEVER_STARTED, "The worker's queue did not exist"
    DISPATCH_FAILED = (
        "dispatch_failed",
        Known.NEVER_STARTED,
        "The broker did not take the dispatch message",
    )
    MESSAGE_REJECTED = (
        "message_rejected",
        Known.NEVER_STARTED,
        "The dispatch message was rejected",
    )
    DEADLINE_PASSED = (
        "deadline_passed",
        Known.NEVER_STARTED,
        "The deadline passed before the action could start",
    )
    GIVEN_BACK = (
        "given_back",
        Known.NEVER_STARTED,
        "The worker gave it back before the action started",
    )
    MOVED = "moved", Known.NEVER_STARTED, "Another worker was free to start the action sooner"

    QUEUE_PAUSED = (
        "queue_paused",
        Known.NEVER_STARTED,
        "The worker takes nothing of this queue for a while, as an action of it could not begin",
    )

    ANSWERED = "answered", Known.FINISHED, "What it waited for has come"
    INQUIRY_TIMED_OUT = (
        "inquiry_timed_out",
        Known.FINISHED,
        "Nobody answered the inquiry in time",
    )
    INQUIRY_CANCELLED = (
        "inquiry_cancelled",
        Known.FINISHED,
        "The inquiry was cancelled before anybody answered it",
    )
    INQUIRY_REFUSED = (
        "inquiry_refused",
        Known.NEVER_STARTED,
        "The inquiry could not be asked as its parameters say",
    )

    RUN_DEADLINE_PASSED = (
        "run_deadline_passed",
        Known.OUTCOME_UNKNOWN,
        "The worker did not report an end within the action's time limit",
    )
    WORKER_LOST = (
        "worker_lost",
        Known.OUTCOME_UNKNOWN,
        "The worker was lost while it ran the action",
    )
    PROCESS_LOST = (
        "process_lost",
        Known.OUTCOME_UNKNOWN,
        "The process that ran the action died",
    )
    WORKER_STOPPED = (
        "worker_stopped",
        Known.OUTCOME_UNKNOWN,
        "The worker had to stop before the action ended",
    )

    CANCELLED = "cancelled", Known.NEVER_STARTED, "Cancelled before the action started"
    CANCELLED_RUNNING = "cancelled_running", Known.FINISHED, "Cancelled while the action ran"
    CANCEL_UNCONFIRMED = (
        "cancel_unconfirmed",
        Known.OUTCOME_UNKNOWN,
        "Cancelled; the worker did not confirm that the action was stopped",
    )


BEGAN = frozenset(reason for reason in Reason if reason.known is not Known.NEVER_STARTED)
"""Reasons of attempts that began, or may have."""

WITHOUT_A_WORKER = frozenset(
    {
        Reason.NO_WORKER_AVAILABLE,
        Reason.QUEUE_TTL_EXPIRED,
        Reason.SCHEDULED_TIMEOUT,
        Reason.UNROUTABLE,
        Reason.WORKER_LOST,
        Reason.WORKER_STOPPED,
    }
)
"""Reasons without a worker, or after its loss: the action is not to blame."""

WITHOUT_PAYLOAD = frozenset(
    {
        Reason.QUEUE_TTL_EXPIRED,
        Reason.SCHEDULED_TIMEOUT,
        Reason.NO_WORKER_AVAILABLE,
        Reason.UNROUTABLE,
        Reason.MESSAGE_REJECTED,
        Reason.RUN_DEADLINE_PASSED,
        Reason.WORKER_LOST,
    }
)
"""Reasons of ends whose result is Muster's alone: it names workers, limits and what was asked of a
worker, and nothing that went into the work or came out of it."""
