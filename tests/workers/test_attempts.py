"""What a worker says of an attempt whose process died, by whosever hand."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError

from orchestrator.core.reasons import Reason
from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import runtimes
from workers.attempts import STOPPED, Attempt


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An attempt that runs; `ended` has what it was said to have come to."""
    monkeypatch.setattr("workers.attempts.processes.terminate", lambda *_, **__: 0)
    monkeypatch.setattr("workers.attempts.processes.kill_warm", lambda *_: 0)
    attempt: Any = Attempt.__new__(Attempt)
    attempt.execution_id, attempt.number, attempt.time_start = "id", 1, 1.0
    attempt.send_event = lambda *_, **__: None
    attempt.ended = []
    attempt.desk = SimpleNamespace(ended=lambda *told: attempt.ended.append(told[1:]))
    return attempt


def lost(attempt: Any, error: Exception) -> tuple[Reason, dict[str, Any]]:
    try:
        raise error
    except type(error):
        attempt.on_lost(ExceptionInfo())
    wait_until(lambda: attempt.ended)
    (end,) = attempt.ended
    return end  # type: ignore[no-any-return]


KILLED = WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL) Job: 3.")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KILLED, "The pool process that ran it ended: signal 9 (SIGKILL)."),
        (WorkerLostError("gone\nfor good"), "ended before the action did."),
        (ValueError("no\nsuch thing"), "The worker failed while it ran the action: ValueError: no"),
    ],
)
def test_lost_process_is_told_of_in_one_sentence(
    attempt: Any, error: Exception, message: str
) -> None:
    reason, result = lost(attempt, error)
    assert reason is Reason.PROCESS_LOST
    assert message in result["message"]
    assert "\n" not in result["message"]
    assert "Traceback" not in result["message"]


def test_loop_does_not_wait_while_what_a_child_left_behind_is_ended(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    warm: list[str] = []
    monkeypatch.setattr(
        "workers.attempts.processes.terminate", lambda *_, **__: ended.wait(30) and 0
    )
    monkeypatch.setattr("workers.attempts.processes.kill_warm", warm.append)
    attempt.worker_pid = 4711

    attempt.on_lost(SimpleNamespace(exception=KILLED))

    assert (attempt.ended, attempt.is_lost) == ([], True)
    assert attempt.worker_pid is None, "nobody signals another process that gets its number"
    ended.set()
    wait_until(lambda: attempt.ended)
    assert warm == ["4711"]


def no_more_threads(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_attempt_ends_though_no_thread_can_be_started(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_more_threads)
    assert lost(attempt, KILLED)[0] is Reason.PROCESS_LOST


def test_attempt_ends_whatever_is_wrong_with_what_its_child_left_behind(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.attempts.processes.terminate", lambda *_, **__: 1 / 0)
    assert lost(attempt, KILLED)[0] is Reason.PROCESS_LOST


@pytest.mark.skipif(sys.platform != "linux", reason="keepers need Linux")
def test_thread_that_is_lost_leaves_the_processes_of_other_threads_alone(
    attempt: Any, tmp_path: Path
) -> None:
    (tmp_path / "quiet.py").write_text("import os\ndef pid():\n    return os.getpid()\n")
    asked = call("python", "quiet:pid", pack_path=str(tmp_path / "pack"))
    pid = runtimes.run(asked).result

    attempt.worker_pid = os.getpid()
    lost(attempt, WorkerLostError("SystemExit(3)"))

    assert runtimes.run(asked).result == pid


def test_pools_own_time_limit_is_a_timeout(attempt: Any) -> None:
    reason, result = lost(attempt, TimeLimitExceeded(3))
    assert reason is Reason.RUN_TIMEOUT
    assert result["message"] == "It ran past its time limit, and its process was killed."


def test_what_its_worker_killed_to_stop_is_no_crash(attempt: Any) -> None:
    attempt.is_stopped = True
    assert lost(attempt, KILLED) == (
        Reason.WORKER_STOPPED,
        {"error": Reason.WORKER_STOPPED.text, "message": STOPPED, "failed_by": "worker"},
    )


def test_cancel_comes_before_the_stop_of_its_worker(attempt: Any) -> None:
    attempt.is_stopped = attempt.is_canceling = True
    assert lost(attempt, KILLED)[0] is Reason.CANCELLED_RUNNING


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (runtimes.completed({}), Reason.SUCCEEDED),
        (runtimes.failed("It was killed by SIGKILL."), Reason.WORKER_STOPPED),
        (runtimes.failed("lost", reason=Reason.PROCESS_LOST), Reason.WORKER_STOPPED),
        (runtimes.failed("stopped", reason=Reason.CANCELLED_RUNNING), Reason.WORKER_STOPPED),
        (runtimes.failed("late", reason=Reason.RUN_TIMEOUT), Reason.RUN_TIMEOUT),
        (runtimes.failed("not now", reason=Reason.TASK_REJECTED), Reason.TASK_REJECTED),
    ],
)
def test_failure_of_what_its_worker_stops_is_the_stop_unless_it_was_over_before(
    attempt: Any, outcome: runtimes.Outcome, reason: Reason
) -> None:
    attempt.is_stopped = True
    attempt.on_outcome(outcome)
    ((found, result),) = attempt.ended
    assert found is reason
    assert (result.get("message") == STOPPED) == (reason is Reason.WORKER_STOPPED)


def test_outcome_that_nobody_understands_ends_the_attempt(attempt: Any) -> None:
    attempt.on_outcome(runtimes.Outcome("complete", "unheard_of", {}))
    ((reason, result),) = attempt.ended
    assert reason is Reason.PROCESS_LOST
    assert "unheard_of" in result["message"]


def test_start_that_celery_cannot_announce_is_one_all_the_same(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celery.worker.request.Request.on_accepted", lambda *_: 1 / 0)
    attempt.on_accepted(os.getpid(), 1.0)


def test_interruption_that_nobody_here_asked_for_is_a_lost_process(attempt: Any) -> None:
    attempt.on_outcome(runtimes.failed("stopped", reason=Reason.CANCELLED_RUNNING))
    ((reason, result),) = attempt.ended
    assert reason is Reason.PROCESS_LOST
    assert result["error"] == Reason.PROCESS_LOST.text
